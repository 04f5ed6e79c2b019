package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"
)

// Protocols for [Options].
const (
	HTTP = "http/protobuf"
	GRPC = "grpc"
)

// signal is a kind of telemetry.
type signal struct {
	name    string
	path    string // HTTP path below the endpoint
	service string // gRPC service
}

var (
	traces  = signal{"traces", "v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"}
	metrics = signal{"metrics", "v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"}
)

// sender sends OTLP requests to a collector. It is safe for concurrent use.
type sender struct {
	client *http.Client
	base   *url.URL
	grpc   bool
	header http.Header

	stopping <-chan struct{} // when closed, failed requests are not retried
}

func newSender(o *Options, stopping <-chan struct{}) (*sender, error) {
	base, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, err
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", o.CA)
		}
	}
	s := &sender{base: base, grpc: o.Protocol == GRPC, header: o.Header.Clone(), stopping: stopping}
	if s.header == nil {
		s.header = make(http.Header)
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	if s.grpc {
		protocols.SetUnencryptedHTTP2(true)
		s.header.Set("Content-Type", "application/grpc")
		s.header.Set("Te", "trailers")
	} else {
		protocols.SetHTTP1(true)
		s.header.Set("Content-Type", "application/x-protobuf")
	}
	s.header.Set("User-Agent", "fila/"+o.Version)
	s.client = &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, Protocols: &protocols, IdleConnTimeout: time.Minute,
	}}
	if o.transport != nil {
		s.client.Transport = o.transport
	}
	return s, nil
}

func (s *sender) close() { s.client.CloseIdleConnections() }

const (
	sendFor    = 10 * time.Second // maximum time for all tries of one request
	firstPause = 250 * time.Millisecond
	mostPause  = 4 * time.Second
)

// send sends a request and retries it as long as a retry can help, until ctx ends or sendFor
// has passed.
func (s *sender) send(ctx context.Context, what signal, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendFor)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := s.try(ctx, what, body)
		var refused *refusal
		if err == nil || errors.As(err, &refused) && !refused.again {
			return err
		}
		wait, stopping := pause, s.stopping
		if refused != nil {
			wait, stopping = max(wait, refused.after), nil // the collector is reachable, so the retry is worth the wait
		}
		select {
		case <-stopping:
			return err
		default:
		}
		select {
		case <-time.After(wait):
		case <-stopping:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// refusal is an error answer of a collector.
type refusal struct {
	text  string
	again bool          // a retry may succeed
	after time.Duration // earliest retry
}

func (r *refusal) Error() string { return r.text }

func (s *sender) try(ctx context.Context, what signal, body []byte) error {
	at := s.base.JoinPath(what.path)
	if s.grpc {
		at = &url.URL{Scheme: s.base.Scheme, Host: s.base.Host, Path: what.service}
		// One gRPC message: a flag for no compression, its length, its bytes.
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = s.header.Clone()
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // the body has been read
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return err
	}
	if s.grpc && resp.StatusCode == http.StatusOK {
		return grpcStatus(resp)
	}
	return httpStatus(resp, text)
}

func httpStatus(resp *http.Response, text []byte) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	r := &refusal{text: "HTTP status " + resp.Status}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		r.again = true
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			r.after = time.Duration(min(seconds, int(sendFor/time.Second))) * time.Second
		}
	}
	if resp.Header.Get("Content-Type") != "application/x-protobuf" && len(text) > 0 {
		const most = 200
		r.text = fmt.Sprintf("%s: %.*q", r.text, most, text)
	}
	return r
}

// grpcAgain are the gRPC codes that permit a retry: cancelled, deadline exceeded, aborted, out
// of range, unavailable, data loss.
var grpcAgain = []string{"1", "4", "10", "11", "14", "15"}

// grpcStatus reads the status from the trailer, or from the header if there is no trailer.
func grpcStatus(resp *http.Response) error {
	status, message := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if status == "" {
		status, message = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	switch status {
	case "0":
		return nil
	case "":
		return &refusal{text: "an answer without a status of gRPC"}
	}
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}
	return &refusal{text: fmt.Sprintf("gRPC status %s: %s", status, message), again: slices.Contains(grpcAgain, status)}
}

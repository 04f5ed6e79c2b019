package natsio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// HeaderLimitsOf returns the limits of a configuration.
func HeaderLimitsOf(cfg *config.NATSConfig) wire.HeaderLimits {
	return wire.HeaderLimits{Bytes: cfg.MaxHeaderBytes, Count: cfg.MaxHeaders}
}

// filteredServer connects to an embedded server through a [frameFilter].
type filteredServer struct {
	*Embedded
	limits wire.HeaderLimits
}

func (s filteredServer) InProcessConn() (net.Conn, error) {
	conn, err := s.Embedded.InProcessConn()
	if err != nil {
		return nil, err
	}
	return newFrameFilter(conn, s.limits), nil
}

// filteredDial makes nats.go dial through a [frameFilter].
func filteredDial(limits wire.HeaderLimits) nats.Option {
	return func(o *nats.Options) error {
		o.SkipHostLookup = true // the dialer needs the name for TLS
		o.CustomDialer = &filterDialer{limits: limits, options: o}
		return nil
	}
}

// filterDialer dials the connections of one nats.Conn. It does the TLS handshake itself, since the
// filter has to see decrypted bytes.
type filterDialer struct {
	limits  wire.HeaderLimits
	options *nats.Options // read late, because TLS files may be set after the dialer

	last *frameFilter // the newest connection
	host string       // host of last
	name string       // last host that was a name: servers announce other servers by address only
}

// Dial tries all addresses of a host in random order.
func (d *filterDialer) Dial(network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsDialTimeout)
	defer cancel()
	addresses := []string{host}
	if net.ParseIP(host) == nil {
		if addresses, err = net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return nil, err
		}
		rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	}
	for _, one := range addresses {
		dialer := net.Dialer{Timeout: natsDialTimeout / time.Duration(len(addresses))}
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, network, net.JoinHostPort(one, port)); err == nil {
			d.last, d.host = newFrameFilter(conn, d.limits), host
			return d.last, nil
		}
	}
	return nil, err
}

// SkipTLSHandshake is called by nats.go when TLS has to begin. It does the handshake; if that
// fails, the next write and read return the error.
func (d *filterDialer) SkipTLSHandshake() bool {
	plain := d.last.Conn
	conn, err := d.handshake()
	if err == nil && !d.last.secure(conn) {
		err = errors.New("the server sent more than INFO before TLS")
	}
	if err != nil {
		_ = plain.Close()
		d.last.secure(failedConn{plain, fmt.Errorf("%w: %w", nats.ErrTLS, err)})
	}
	return true
}

func (d *filterDialer) handshake() (net.Conn, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.options.TLSConfig != nil {
		cfg = d.options.TLSConfig.Clone()
	}
	if load := d.options.RootCAsCB; load != nil {
		pool, err := load()
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	if load := d.options.TLSCertCB; load != nil {
		cert, err := load()
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	isName := net.ParseIP(d.host) == nil
	if cfg.ServerName == "" {
		cfg.ServerName = d.host
		if !isName && d.name != "" && !d.configured() {
			cfg.ServerName = d.name
		}
	}
	conn := tls.Client(d.last.Conn, cfg)
	if err := conn.Handshake(); err != nil {
		return nil, err
	}
	if isName {
		d.name = d.host
	}
	return conn, nil
}

// configured reports whether the configuration contains the host of last.
func (d *filterDialer) configured() bool {
	return slices.ContainsFunc(d.options.Servers, func(server string) bool {
		u, err := url.Parse(server)
		return err == nil && u.Hostname() == d.host
	})
}

// failedConn is a connection whose handshake has failed.
type failedConn struct {
	net.Conn
	err error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }

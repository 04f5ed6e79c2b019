package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOTelRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*OTelConfig)
		want   string
	}{
		"protocol":        {func(o *OTelConfig) { o.Protocol = "json" }, "otel.protocol"},
		"sampling":        {func(o *OTelConfig) { o.Sampling = "always" }, "otel.sampling"},
		"interval":        {func(o *OTelConfig) { o.MetricsIntervalMs = -1 }, "otel.metrics_interval_ms"},
		"no scheme":       {func(o *OTelConfig) { o.Endpoint = "collector:4318" }, "otel.endpoint"},
		"another scheme":  {func(o *OTelConfig) { o.Endpoint = "grpc://collector:4317" }, "otel.endpoint"},
		"no host":         {func(o *OTelConfig) { o.Endpoint = "http://" }, "otel.endpoint"},
		"query":           {func(o *OTelConfig) { o.Endpoint = "http://c:1?a=b" }, "otel.endpoint"},
		"path with gRPC":  {func(o *OTelConfig) { o.Endpoint, o.Protocol = "http://c:4317/v1", "grpc" }, "otel.endpoint"},
		"CA without TLS":  {func(o *OTelConfig) { o.Endpoint, o.CA = "http://c:1", "ca.pem" }, "otel.ca"},
		"nothing to send": {func(o *OTelConfig) { o.Endpoint, o.Sampling, o.MetricsIntervalMs = "http://c:1", "off", 0 }, "nothing would be sent"},
		"no headers":      {func(o *OTelConfig) { o.Endpoint, o.HeadersFile = "http://c:1", "there/is/none" }, "otel.headers_file"},
	} {
		c := Default()
		tc.change(&c.OTel)
		require.ErrorContains(t, c.Validate(), tc.want, name)
	}
	c := Default()
	c.OTel.Endpoint = "http://user:secret@collector:4318"
	require.ErrorContains(t, c.Validate(), "otel.endpoint")
	require.NotContains(t, c.Validate().Error(), "secret")
	for _, endpoint := range []string{"", "http://127.0.0.1:4318", "https://otlp.example.com/otlp", "http://[::1]:4318/"} {
		c.OTel.Endpoint = endpoint
		require.NoError(t, c.Validate(), endpoint)
	}
	c.OTel.Endpoint, c.OTel.Protocol = "http://127.0.0.1:4317/", "grpc"
	require.NoError(t, c.Validate())
}

func TestOTelHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	o := OTelConfig{HeadersFile: file}
	require.NoError(t, os.WriteFile(file, []byte("# who we are\nauthorization: Bearer a:b\n\n x-scope:  orders \nx-scope: mail\n"), 0o600))
	h, err := o.Headers()
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"Authorization": {"Bearer a:b"}, "X-Scope": {"orders", "mail"}}, h)
	for _, line := range []string{"secret", ": secret", "a b: secret", "a: sec\x01ret"} {
		require.NoError(t, os.WriteFile(file, []byte("ok: 1\n"+line+"\n"), 0o600))
		_, err = o.Headers()
		require.ErrorContains(t, err, "line 2 of "+file)
		require.NotContains(t, err.Error(), "secret")
	}
}

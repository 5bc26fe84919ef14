package extender

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// maxExtra is how much longer than twice its request a response may be: it names nodes of the
// request, with reasons.
const maxExtra = 1 << 20

// post sends a request to the extender and returns the body of its response.
func (e *extender) post(ctx context.Context, verb string, in any) ([]byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	address := strings.TrimRight(e.URLPrefix, "/") + "/" + strings.TrimLeft(verb, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, resp.Status)
	}
	limit := int64(maxExtra + 2*len(body))
	out, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the response of %s: %w", address, err)
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("the response of %s is longer than %d bytes", address, limit)
	}
	return out, nil
}

// newClient returns a client that follows no redirects: the request is only for the extender.
func newClient(transport http.RoundTripper, c *TLSConfig) (*http.Client, error) {
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		if c != nil {
			var err error
			if t.TLSClientConfig, err = c.load(); err != nil {
				return nil, err
			}
		}
		transport = t
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// load reads the certificates.
func (c *TLSConfig) load() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure}
	ca, err := dataOr(c.CAData, c.CAFile)
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		if c.Insecure {
			return nil, errors.New("insecure and an authority exclude each other")
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the authority is not a certificate in PEM")
		}
	}
	cert, err := dataOr(c.CertData, c.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := dataOr(c.KeyData, c.KeyFile)
	if err != nil {
		return nil, err
	}
	if len(cert) == 0 && len(key) == 0 {
		return out, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the client certificate: %w", err)
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}

func dataOr(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}

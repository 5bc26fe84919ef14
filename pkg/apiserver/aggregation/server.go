package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/apiserver/backends"
	"podium/pkg/apiserver/request"
)

const (
	dialTimeout  = 10 * time.Second
	idleTimeout  = 90 * time.Second
	pingAfter    = 30 * time.Second
	pingTimeout  = 15 * time.Second
	maxHeader    = 1 << 20  // bytes of an answer's headers
	maxDocument  = 16 << 20 // bytes of a discovery or OpenAPI document
	fetchTimeout = 5 * time.Second
)

// server is an extension API server behind a Service.
type server struct {
	requests *http.Transport // HTTP/2 or HTTP/1.1
	streams  *http.Transport // HTTP/1.1, for requests that switch protocols
	err      error           // the APIService's TLS configuration is not usable
}

// newServer returns the connections that an APIService describes. It dials nothing.
func newServer(cfg *Config, spec *apiregistrationv1.APIServiceSpec) *server {
	trust := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: spec.Service.Name + "." + spec.Service.Namespace + ".svc",
		// An APIService may ask for this; its validation refuses it beside a caBundle.
		InsecureSkipVerify: spec.InsecureSkipTLSVerify,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cfg.Certificate == nil {
				return &tls.Certificate{}, nil
			}
			return cfg.Certificate(), nil
		},
	}
	s := &server{}
	if len(spec.CABundle) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(spec.CABundle) {
			s.err = errors.New("unable to load root certificates: spec.caBundle has no certificate in PEM form")
		}
	}
	transport := func(http2 bool) *http.Transport {
		t := &http.Transport{
			DialContext: cfg.Dial, TLSClientConfig: trust.Clone(), TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout,
			MaxIdleConnsPerHost: 25, MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
			Protocols: &http.Protocols{}, HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		}
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(http2)
		return t
	}
	s.requests, s.streams = transport(true), transport(false)
	return s
}

// close closes idle connections. Those in use stay until their requests end.
func (s *server) close() {
	s.requests.CloseIdleConnections()
	s.streams.CloseIdleConnections()
}

// resolve returns the host:port at which this server reaches a Service.
func (a *Aggregator) resolve(ctx context.Context, to *apiregistrationv1.ServiceReference) (string, error) {
	if to.Namespace == metav1.NamespaceDefault && to.Name == "kubernetes" {
		return "", errors.New("the Service default/kubernetes is this server itself")
	}
	svc, ok := a.Objects.Recent(ctx, corev1.SchemeGroupVersion.WithResource("services"), to.Namespace, to.Name).(*corev1.Service)
	if !ok {
		return "", fmt.Errorf("service %q not found", to.Name)
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(*to.Port))), nil
	}
	port := portOf(svc, *to.Port)
	switch {
	case port == nil:
		return "", fmt.Errorf("no service port %d found for service %q", *to.Port, to.Name)
	case a.ToEndpoints:
		slices, err := a.slices(ctx, to)
		all := ready(slices, port.Name)
		if err != nil || len(all) == 0 {
			return "", errors.Join(err, fmt.Errorf("no endpoints available for service %q", to.Name))
		}
		return all[rand.IntN(len(all))].String(), nil
	case svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "":
		return "", fmt.Errorf("cannot route to service with ClusterIP %q", svc.Spec.ClusterIP)
	}
	return net.JoinHostPort(svc.Spec.ClusterIP, strconv.Itoa(int(*to.Port))), nil
}

// portOf returns the port of a Service with that number, nil if there is none.
func portOf(svc *corev1.Service, number int32) *corev1.ServicePort {
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].Port == number {
			return &svc.Spec.Ports[i]
		}
	}
	return nil
}

// ready returns the ready endpoints on the port with that name.
func ready(slices []*discoveryv1.EndpointSlice, port string) (all []netip.AddrPort) {
	for _, s := range slices {
		all = append(all, backends.Endpoints(s, port)...)
	}
	return all
}

// slices returns the EndpointSlices of a Service.
func (a *Aggregator) slices(ctx context.Context, to *apiregistrationv1.ServiceReference) ([]*discoveryv1.EndpointSlice, error) {
	all, err := a.Objects.List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), to.Namespace)
	var out []*discoveryv1.EndpointSlice
	for _, obj := range all {
		if s := obj.(*discoveryv1.EndpointSlice); s.Labels[discoveryv1.LabelServiceName] == to.Name {
			out = append(out, s)
		}
	}
	return out, err
}

// answer is the complete answer to a request of this server itself.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// get asks the server for a document as the aggregator, which may read everything
// there. It follows no redirect and reads at most maxDocument bytes. Its error has
// upstream's text.
func (r *remote) get(ctx context.Context, path, accept, etag string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if r.server.err != nil {
		return nil, r.server.err
	}
	host, err := r.a.resolve(ctx, r.spec.Service)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "https", Host: host, Path: path}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	identify(req.Header, &request.User{Name: "system:kube-aggregator", Groups: []string{"system:masters"}})
	for name, value := range map[string]string{"Accept": accept, "If-None-Match": etag} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	client := http.Client{Transport: r.server.requests, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("failing or missing response from %v: %w", &u, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("failing or missing response from %v: %w", &u, err)
	case len(body) > maxDocument:
		return nil, fmt.Errorf("failing or missing response from %v: it is longer than %d bytes", &u, maxDocument)
	case resp.StatusCode != http.StatusNotModified && (resp.StatusCode < 200 || resp.StatusCode > 299):
		return nil, &statusError{resp.StatusCode, fmt.Errorf("failing or missing response from %v: bad status from %[1]v: %d", &u, resp.StatusCode)}
	}
	return &answer{resp.StatusCode, resp.Header, body}, nil
}

// statusError is the error for an answer that is not a success.
type statusError struct {
	code int
	error
}

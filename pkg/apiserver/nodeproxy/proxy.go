package nodeproxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"podium/pkg/apiserver/backends"
	"podium/pkg/apiserver/wire"
	"podium/pkg/client/streams"
)

// podProxy serves the HTTP proxy to a pod: [scheme:]name[:port].
func (p *Proxy) podProxy(req *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(req.name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", req.name))
	}
	pod, err := get[*corev1.Pod](req, "pods", req.namespace, name)
	if err != nil {
		return err
	}
	if port == "" {
		port = firstPort(pod)
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return p.forward(req, scheme, ip, port, p.pods)
}

// firstPort returns the first container port of a pod, "" if there is none.
func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// serviceProxy serves the HTTP proxy to a random ready endpoint of a Service:
// [scheme:]name[:port or port name].
func (p *Proxy) serviceProxy(req *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(req.name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", req.name))
	}
	to, err := backends.Pick(req.r.Context(), req, req.namespace, name, port)
	if err != nil {
		return err
	}
	if !to.IsValid() {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", req.name))
	}
	return p.forward(req, scheme, to.Addr().String(), strconv.Itoa(int(to.Port())), p.pods)
}

// nodeProxy serves the HTTP proxy to a node's kubelet, or to another port of
// the node: [scheme:]name[:port].
func (p *Proxy) nodeProxy(req *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(req.name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", req.name))
	}
	k, err := p.kubelet(req, name)
	if err != nil {
		return err
	}
	if port != "" && port != k.port {
		return p.forward(req, scheme, k.host, port, p.pods)
	}
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), Path: req.path}
	return p.pass(req, u, kubeletTransport{p.kubelets, k.node})
}

// forward proxies the request to an IP address and port, or returns a
// BadRequest error if the address is not allowed. The default scheme is http.
func (p *Proxy) forward(req *request, scheme, ip, port string, transport http.RoundTripper) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil || !p.allowed(addr, port) {
		return apierrors.NewBadRequest(errNotAllowed.Error())
	}
	if scheme == "" {
		scheme = "http"
	}
	host := addr.String()
	switch {
	case port != "":
		host = net.JoinHostPort(host, port)
	case addr.Is6():
		host = "[" + host + "]"
	}
	return p.pass(req, &url.URL{Scheme: scheme, Host: host, Path: req.path}, transport)
}

// allowed reports whether the proxy may connect to an address. It refuses
// loopback and link-local addresses and this server itself: clients must not
// gain the server's access to the network.
func (c *Config) allowed(addr netip.Addr, port string) bool {
	if c.Anywhere {
		return true
	}
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() {
		return false
	}
	for _, own := range c.Own {
		if own.Addr().Unmap() == addr && strconv.Itoa(int(own.Port())) == port {
			return false
		}
	}
	return true
}

// pass proxies the request to u and rewrites links in the response to lead
// through the proxy.
func (p *Proxy) pass(req *request, u *url.URL, transport http.RoundTripper) error {
	r := req.r
	if u.Path == "" && strings.HasSuffix(r.URL.Path, "/") {
		u.Path = "/"
	}
	u.RawQuery = r.URL.RawQuery
	if streams.IsUpgrade(r) {
		return dialing(streams.Target{URL: u, Transport: transport}.Upgrade(req.w, hygienic(r)))
	}
	if u.Path == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		to := url.URL{Path: r.URL.Path + "/", RawQuery: r.URL.RawQuery}
		req.w.Header().Set("Location", to.String())
		req.w.WriteHeader(http.StatusMovedPermanently)
		return nil
	}
	links := &rewriter{prefix: strings.TrimSuffix(r.URL.Path, u.Path), target: u.Host, host: r.Host}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL = u
			pr.Out.Host = pr.In.Host
			pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
			pr.SetXForwarded()
			pr.Out.Header.Set("X-Forwarded-Uri", links.prefix+u.EscapedPath())
		},
		ModifyResponse: links.response,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p.Log.Debug("proxy", "to", u.Host, "err", err)
			wire.WriteError(w, req.r, apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err)))
		},
	}
	proxy.ServeHTTP(req.w, hygienic(r))
	return nil
}

// hygienic returns a copy of the request without the client's credentials and
// identity headers.
func hygienic(r *http.Request) *http.Request {
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	for name := range out.Header {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			delete(out.Header, name)
		}
	}
	return out
}

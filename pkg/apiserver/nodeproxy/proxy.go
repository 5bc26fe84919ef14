package nodeproxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"podium/pkg/apiserver/wire"
	"podium/pkg/client/streams"
)

// podProxy is the HTTP proxy to a pod: [scheme:]name[:port].
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

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// serviceProxy is the HTTP proxy to one of a Service's ready endpoints:
// [scheme:]name[:port or port name].
func (p *Proxy) serviceProxy(req *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(req.name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", req.name))
	}
	svc, err := get[*corev1.Service](req, "services", req.namespace, name)
	if err != nil {
		return err
	}
	if number, err := strconv.ParseInt(port, 10, 32); err == nil {
		if port, err = portName(svc, int32(number)); err != nil {
			return err
		}
	}
	slices, err := req.List(req.r.Context(), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), req.namespace)
	if err != nil {
		return err
	}
	var ready []netip.AddrPort
	for _, obj := range slices {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == name {
			ready = append(ready, endpoints(slice, port)...)
		}
	}
	if len(ready) == 0 {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", req.name))
	}
	to := ready[rand.IntN(len(ready))]
	return p.forward(req, scheme, to.Addr().String(), strconv.Itoa(int(to.Port())), p.pods)
}

// portName is the name of a Service's port, as its endpoints have it.
func portName(svc *corev1.Service, number int32) (string, error) {
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].Port == number {
			return svc.Spec.Ports[i].Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, svc.Name))
}

// endpoints are a slice's ready addresses on the port of that name.
func endpoints(slice *discoveryv1.EndpointSlice, port string) []netip.AddrPort {
	var number uint16
	for _, sp := range slice.Ports {
		if sp.Port != nil && (sp.Name == nil && port == "" || sp.Name != nil && *sp.Name == port) {
			number = uint16(*sp.Port)
		}
	}
	if number == 0 {
		return nil
	}
	var out []netip.AddrPort
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		if ep.Conditions.Ready != nil && !*ep.Conditions.Ready || len(ep.Addresses) == 0 {
			continue
		}
		if a, err := netip.ParseAddr(ep.Addresses[0]); err == nil {
			out = append(out, netip.AddrPortFrom(a, number))
		}
	}
	return out
}

// nodeProxy is the HTTP proxy to a node's kubelet, or to another port of the
// node: [scheme:]name[:port].
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

// forward passes the request on to an address, if that is one where pods can be.
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

// allowed refuses addresses of this machine's own (loopback, link-local) and
// this server itself: the proxy must not lend its place in the network.
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

// pass sends the request to u, and the answer back with its links rewritten so
// that they lead through the proxy again.
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

// hygienic is the request without what proves to us who the client is.
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

package security

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// kubeletPages are all paths that a kubelet serves, those that only upstream's serves, and
// spellings of both.
var kubeletPages = []string{
	"/", "/pods", "/pods/", "/runningpods/", "/runningpods", "/configz", "/spec/", "/healthz", "/healthz/ping", "/livez", "/readyz", "/healthz/syncloop",
	"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis", "/stats/", "/stats/summary", "/stats/container",
	"/logs/", "/logs/syslog", "/logs/../../etc/shadow", "/logs/%2e%2e/%2e%2e/etc/shadow", "/logs", "/containerLogs/NS/p/c", "/containerLogs/NS/p/c?follow=true",
	"/exec/NS/p/c?command=id&output=1", "/exec/NS/p/uid/c?command=id&output=1", "/attach/NS/p/c?output=1", "/portForward/NS/p", "/run/NS/p/c?cmd=id",
	"/cri/exec/token", "/checkpoint/NS/p/c", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/flagz", "/statusz", "/api/v1/nodes", "/apis", "/version",
	"//pods", "/./pods", "/x/../pods", "/pods%00", "/PODS", "/%70ods", "/pods;a=b", "/healthz/../pods", "/healthz/..%2fpods", "/exec/../pods",
}

// A kubelet serves none of its pages to a client without credentials or with unknown ones (401),
// or without permission (403), with any method.
func TestKubeletPort(t *testing.T) {
	t.Parallel()
	ns := space(t)
	base := "https://" + net.JoinHostPort(nodeIP(t), "10250")
	open := func(header http.Header, pairs ...tls.Certificate) *caller {
		return newCaller(t, base, &tls.Config{InsecureSkipVerify: true, Certificates: pairs}, header)
	}
	good := token(t, ns, authenticationv1.TokenRequestSpec{})
	header, rest, _ := strings.Cut(good, ".")
	payload, _, _ := strings.Cut(rest, ".")
	shows := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	_, self := issue(t, clientCertificate(), nil)
	unknown := []int{http.StatusUnauthorized}
	forbidden := []int{http.StatusForbidden, http.StatusUnauthorized} // a kubelet need not authenticate users without permissions

	if a := open(nil, stolen(t, "apiserver-kubelet-client")).do(t, "GET", "/pods", ""); a.code != http.StatusOK {
		t.Fatalf("the API server's certificate gets %d: this test would prove nothing", a.code)
	}
	for who, row := range map[string]struct {
		client *caller
		codes  []int
	}{
		"nothing":                         {open(nil), unknown},
		"an empty token":                  {open(shows("")), unknown},
		"a token of letters":              {open(shows("kubernetes-admin")), unknown},
		"a token without its signature":   {open(shows(header + "." + payload + ".")), unknown},
		"a token for another audience":    {open(shows(token(t, ns, authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}))), unknown},
		"a password":                      {open(http.Header{"Authorization": {"Basic a3ViZXJuZXRlcy1hZG1pbjp4"}}), unknown},
		"a proxy's headers":               {open(http.Header{"X-Remote-User": {"kubernetes-admin"}, "X-Remote-Group": {"system:masters"}}), unknown},
		"the headers of an impersonation": {open(http.Header{"Impersonate-User": {"kubernetes-admin"}, "Impersonate-Group": {"system:masters"}}), unknown},
		"a certificate of its own":        {open(nil, self), unknown},
		"an account without rights":       {open(shows(good)), forbidden},
		"the scheduler's certificate":     {open(nil, stolen(t, "kube-scheduler")), forbidden},
		"a proxy's certificate":           {open(nil, stolen(t, "kube-proxy")), forbidden},
		"the certificate of a node":       {open(nil, stolen(t, "kubelet")), forbidden},
		"an impersonation without rights": {open(http.Header{"Authorization": shows(good)["Authorization"], "Impersonate-User": {"kubernetes-admin"}}), forbidden},
	} {
		for _, page := range kubeletPages {
			path := strings.ReplaceAll(page, "NS", ns)
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
				a, err := row.client.send(t.Context(), method, path, "")
				if err != nil && who == "a certificate of its own" {
					continue // the handshake fails
				}
				if err != nil {
					t.Fatalf("%s %s: %v", method, path, err)
				}
				redirect := a.code == http.StatusMovedPermanently || a.code == http.StatusTemporaryRedirect // to the clean path
				if !slices.Contains(row.codes, a.code) && !redirect || len(a.body) > 400 {
					t.Errorf("%s, %s %s: %d, want of %v: %.200s", who, method, path, a.code, row.codes, a.body)
				}
			}
		}
	}
}

// The other daemons' ports serve only their health to anonymous clients.
func TestDaemonPorts(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"https://127.0.0.1:10257", "https://127.0.0.1:10259"} {
		c := newCaller(t, base, &tls.Config{InsecureSkipVerify: true}, nil)
		for _, page := range []string{"/metrics", "/metrics/slis", "/configz", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/", "/flagz", "/statusz", "/healthz/../metrics", "//metrics"} {
			for _, method := range []string{"GET", "POST", "PUT"} {
				if a := c.do(t, method, page, ""); a.code/100 != 4 && a.code/100 != 3 {
					t.Errorf("%s %s%s: %d %.200s", method, base, page, a.code, a.body)
				}
			}
		}
		if a := c.do(t, "GET", "/healthz", ""); a.code != http.StatusOK {
			t.Errorf("%s/healthz: %d, want 200", base, a.code)
		}
	}
}

// listeners returns the TCP ports of this network namespace that other machines can reach,
// according to /proc.
func listeners(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		check(t, err)
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			const listening = "0A"
			if len(fields) < 4 || fields[3] != listening {
				continue
			}
			address, port, _ := strings.Cut(fields[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			check(t, err)
			if !strings.HasSuffix(address, "0100007F") && address != "00000000000000000000000001000000" { // not 127.0.0.1, not ::1
				found[int(n)] = address
			}
		}
	}
	return found
}

// Other machines can reach the API server, the kubelet and kube-proxy's health, and no other
// port: no etcd, no read-only port, no runtime.
func TestListeners(t *testing.T) {
	known := map[int]string{6443: "kube-apiserver", 10250: "kubelet", 10256: "kube-proxy, its health"}
	found := listeners(t)
	for port, address := range found {
		if known[port] == "" {
			t.Errorf("port %d is open to other machines at %s", port, address)
		}
	}
	for port, daemon := range known {
		if found[port] == "" {
			t.Errorf("%s does not listen on %d: this test looks in the wrong place", daemon, port)
		}
	}
	health := newCaller(t, fmt.Sprintf("http://%s", net.JoinHostPort(nodeIP(t), "10256")), nil, nil)
	for _, page := range []string{"/metrics", "/configz", "/proxyMode", "/debug/pprof/", "/"} {
		if a := health.do(t, "GET", page, ""); a.code != http.StatusNotFound {
			t.Errorf("kube-proxy's health port has %s: %d %.200s", page, a.code, a.body)
		}
	}
}

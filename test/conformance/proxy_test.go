package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// proxyRows returns the rows of the API server's proxy to pods and Services.
func proxyRows() []testcase {
	return []testcase{
		{id: "apiserver-proxy-path-verbs", test: proxyPathVerbs},
		{id: "apiserver-proxy-verbs", test: proxyVerbs},
		{id: "apiserver-proxy-ports-schemes", test: proxyPorts},
	}
}

// proxied starts a pod and a Service for it, and waits until both are proxied
// to.
func proxied(t *testing.T, ctx context.Context, namespace string) (paths []string) {
	t.Helper()
	ready(t, ctx, server(namespace, "pod", map[string]string{"app": "svc"}))
	s := service("svc", "svc")
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromInt32(httpsPort)})
	createService(t, ctx, namespace, s)
	base := "/api/v1/namespaces/" + namespace
	paths = []string{base + "/pods/pod:8080/proxy", base + "/services/svc:http/proxy"}
	for _, path := range paths {
		eventually(t, ctx, path+" answers", func() error {
			_, err := admin.CoreV1().RESTClient().Get().AbsPath(path + "/hostname").DoRaw(ctx)
			return err
		})
	}
	return paths
}

// through sends a request to the API server and does not follow redirects.
func through(t *testing.T, ctx context.Context, method, path string) (code int, body string, header http.Header) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	check(t, err)
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path, nil)
	check(t, err)
	answer, err := client.Do(request)
	check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	return answer.StatusCode, string(text), answer.Header
}

// echoes wants the request to reach the pod with its method.
func echoes(t *testing.T, ctx context.Context, method, path string) {
	t.Helper()
	code, body, _ := through(t, ctx, method, path)
	if code != http.StatusOK {
		t.Errorf("%s %s: %d %s", method, path, code, body)
		return
	}
	if method == http.MethodHead {
		return
	}
	var echo struct{ Method string }
	if err := json.Unmarshal([]byte(body), &echo); err != nil || echo.Method != method {
		t.Errorf("%s %s: the pod answered %q", method, path, body)
	}
}

func proxyPathVerbs(t *testing.T, ctx context.Context, namespace string) {
	for _, path := range proxied(t, ctx, namespace) {
		for _, method := range []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"} {
			echoes(t, ctx, method, path+"/some/path/with/"+method)
		}
	}
}

func proxyVerbs(t *testing.T, ctx context.Context, namespace string) {
	for _, path := range proxied(t, ctx, namespace) {
		for _, method := range []string{"DELETE", "OPTIONS", "PATCH", "POST", "PUT"} {
			echoes(t, ctx, method, path+"?method="+method)
		}
		for _, method := range []string{"GET", "HEAD"} {
			code, _, header := through(t, ctx, method, path+"?method="+method)
			if code != http.StatusMovedPermanently || !strings.Contains(header.Get("Location"), path+"/") {
				t.Errorf("%s %s: %d to %q", method, path, code, header.Get("Location"))
			}
		}
	}
}

// proxyPorts names ports by number and name, with and without a scheme.
func proxyPorts(t *testing.T, ctx context.Context, namespace string) {
	proxied(t, ctx, namespace)
	base := "/api/v1/namespaces/" + namespace
	want := map[string]string{}
	for _, name := range []string{"pods/pod:8080", "pods/http:pod:8080", "pods/https:pod:8443", "services/svc:80", "services/svc:http", "services/http:svc:80", "services/http:svc:http", "services/https:svc:443", "services/https:svc:https"} {
		path := base + "/" + name + "/proxy/"
		want[path+"hostname"] = "pod"
		want[path+"link"] = fmt.Sprintf(`<a href="%srewriteme">test</a>`, path)
	}
	for range 20 {
		for path, body := range want {
			code, got, _ := through(t, ctx, "GET", path)
			if code != http.StatusOK || strings.TrimSpace(got) != body {
				t.Errorf("GET %s: %d %q, want %q", path, code, got, body)
			}
		}
		if t.Failed() {
			return
		}
	}
}

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cli/rest"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

// metricsAPI is an API server that has answers for some paths with their queries.
type metricsAPI map[string]string

func (a metricsAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	body, ok := a[strings.TrimSuffix(r.URL.Path+"?"+r.URL.RawQuery, "?")]
	switch {
	case r.URL.Path == "/api" || r.URL.Path == "/apis":
		resp.Header.Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		body = a.discovery(r.URL.Path)
	case !ok:
		resp.StatusCode, body = 404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"not found: `+r.URL.RequestURI()+`","code":404}`
	}
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp, nil
}

// discovery lists nodes and pods, and their metrics unless the server has none.
func (a metricsAPI) discovery(root string) string {
	version := "v1"
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	group := apidiscoveryv2.APIGroupDiscovery{}
	kinds := map[string]string{"nodes": "Node", "pods": "Pod"}
	if root == "/apis" {
		if _, none := a["no metrics"]; none {
			return `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`
		}
		group.Name, version = "metrics.k8s.io", "v1beta1"
		kinds = map[string]string{"nodes": "NodeMetrics", "pods": "PodMetrics"}
	}
	v := apidiscoveryv2.APIVersionDiscovery{Version: version}
	for resource, kind := range kinds {
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: resource, Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{"get", "list"},
			ResponseKind: &metav1.GroupVersionKind{Group: group.Name, Version: version, Kind: kind},
		}
		if resource == "pods" {
			r.Scope = apidiscoveryv2.ScopeNamespace
		}
		v.Resources = append(v.Resources, r)
	}
	group.Versions = []apidiscoveryv2.APIVersionDiscovery{v}
	list.Items = []apidiscoveryv2.APIGroupDiscovery{group}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestTop(t *testing.T) {
	const (
		web = `{"metadata":{"namespace":"default","name":"web"},"containers":[
			{"name":"main","usage":{"cpu":"1500000n","memory":"3Mi"}},{"name":"helper","usage":{"cpu":"400100000n","memory":"1024Ki"}}]}`
		db     = `{"metadata":{"namespace":"default","name":"db"},"containers":[{"name":"main","usage":{"cpu":"0","memory":"300Mi"}}]}`
		system = `{"metadata":{"namespace":"a-system","name":"dns"},"containers":[{"name":"dns","usage":{"cpu":"5m","memory":"10Mi","swap":"2Mi"}}]}`
		one    = `{"metadata":{"name":"n1"},"usage":{"cpu":"250m","memory":"1Gi","swap":"256Mi"}}`
		two    = `{"metadata":{"name":"n2"},"usage":{"cpu":"1","memory":"512Mi"}}`
	)
	swap := map[string]string{"n1": `,"nodeInfo":{"swap":{"capacity":1073741824}}`}
	node := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"status":{"allocatable":{"cpu":"2","memory":"4Gi"},"capacity":{"cpu":"4","memory":"8Gi"}` + swap[name] + `}}`
	}
	list := func(items ...string) string { return `{"items":[` + strings.Join(items, ",") + `]}` }
	const root = "/apis/metrics.k8s.io/v1beta1"
	api := metricsAPI{
		root + "/nodes": list(two, one), root + "/nodes/n1": one, "/api/v1/nodes/n1": node("n1"),
		"/api/v1/nodes":                     list(node("n3"), node("n2"), node("n1")),
		root + "/pods":                      list(web, system, db),
		root + "/nodes?labelSelector=a%3Db": list(),
		root + "/namespaces/default/pods":   list(web, db), root + "/namespaces/default/pods/web": web,
		root + "/namespaces/default/pods?labelSelector=a%3Db":               list(db),
		root + "/namespaces/default/pods?fieldSelector=metadata.name%3Dweb": list(web),
		root + "/namespaces/empty/pods":                                     list(), "/api/v1/namespaces/empty/pods": list(),
		root + "/namespaces/young/pods": list(), "/api/v1/namespaces/young/pods": list(`{"metadata":{"name":"p","namespace":"young","creationTimestamp":"` + time.Now().UTC().Format(time.RFC3339) + `"}}`),
		root + "/namespaces/old/pods": list(), "/api/v1/namespaces/old/pods": list(`{"metadata":{"name":"p","namespace":"old","creationTimestamp":"2020-01-01T00:00:00Z"}}`),
	}
	for name, row := range map[string]struct {
		api  metricsAPI
		args string
		want string // what it prints, and the error
	}{
		"nodes, those without metrics last": {api, "node", `
NAME   CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)
n1     250m         12%         1024Mi          25%
n2     1000m        50%         512Mi           12%
n3     <unknown>    <unknown>   <unknown>       <unknown>
`},
		"one node, of its capacity": {api, "nodes n1 --show-capacity", "\nNAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\nn1     250m         6%       1024Mi          12%\n"},
		"nodes by usage":            {api, "no --sort-by=cpu --no-headers", "\nn2    1000m       50%         512Mi       12%\nn1    250m        12%         1024Mi      25%\nn3    <unknown>   <unknown>   <unknown>   <unknown>\n"},
		"no node is measured":       {api, "node -l a=b", "\nerror: metrics not available yet\n"},
		"pods by name":              {api, "pod", "\nNAME   CPU(cores)   MEMORY(bytes)\ndb     0m           300Mi\nweb    402m         4Mi\n"},
		"pods by memory":            {api, "po --sort-by=memory --no-headers", "\ndb    0m     300Mi\nweb   402m   4Mi\n"},
		"containers of one pod":     {api, "pod web --containers", "\nPOD   NAME     CPU(cores)   MEMORY(bytes)\nweb   helper   401m         1Mi\nweb   main     2m           3Mi\n"},
		"all namespaces and the sum": {api, "pods -A --sum", `
NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)
a-system    dns    5m           10Mi
default     db     0m           300Mi
default     web    402m         4Mi
                   ________     ________
                   407m         314Mi
`},
		"swap of nodes": {api, "node --show-swap --no-headers", `
n1    250m        12%         1024Mi      25%         256Mi       25%
n2    1000m       50%         512Mi       12%         <unknown>   <unknown>
n3    <unknown>   <unknown>   <unknown>   <unknown>   <unknown>   <unknown>
`},
		"swap of pods": {api, "pods -A --sum --show-swap --containers", `
NAMESPACE   POD   NAME     CPU(cores)   MEMORY(bytes)   SWAP(bytes)
a-system    dns   dns      5m           10Mi            2Mi
default     db    main     0m           300Mi           0Mi
default     web   helper   401m         1Mi             0Mi
default     web   main     2m           3Mi             0Mi
                           ________     ________        ________
                           407m         314Mi           2Mi
`},
		"by label":                  {api, "pod -l a=b --no-headers", "\ndb    0m    300Mi\n"},
		"by field":                  {api, "pod --field-selector metadata.name=web --no-headers", "\nweb   402m   4Mi\n"},
		"a namespace without pods":  {api, "pod -n empty", "\nNo resources found in empty namespace.\n"},
		"pods that have just begun": {api, "pod -n young", "\nerror: metrics not available yet\n"},
		"a name and a selector":     {api, "pod web -l a=b", "\nerror: only one of NAME or selector can be provided\n"},
		"an unknown order":          {api, "pod --sort-by=age", "\nerror: --sort-by accepts only cpu or memory\n"},
		"without the API":           {metricsAPI{"no metrics": ""}, "node", "\nerror: Metrics API not available\n"},
		"a pod without metrics":     {api, "pod other", "\nerror: not found: /apis/metrics.k8s.io/v1beta1/namespaces/default/pods/other\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(row.want, "\n"), topOutput(t, row.api, row.args)); diff != "" {
				t.Errorf("top %s (-want +got):\n%s", row.args, diff)
			}
		})
	}
	if got := topOutput(t, api, "pod -n old"); !strings.HasPrefix(got, "error: Metrics not available for pod old/p, age: ") {
		t.Errorf("a pod that should have metrics: %s", got)
	}
}

// topOutput runs podium top and returns everything that it prints.
func topOutput(t *testing.T, api metricsAPI, args string) string {
	t.Helper()
	var out bytes.Buffer
	f := newFactory(IO{In: strings.NewReader(""), Out: &out, Err: &out})
	f.Connect = func() (*rest.Cluster, error) {
		c, err := client.New(scheme.New(), client.Config{Servers: []string{"http://api"}, Transport: api})
		return rest.New(c, func(string) {}), err
	}
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	cmd := newCommand(f)
	cmd.SetArgs(append([]string{"top"}, strings.Fields(args)...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		out.WriteString("error: " + err.Error() + "\n")
	}
	return out.String()
}

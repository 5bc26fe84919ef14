package extender

import (
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// server is an extender that answers every request with the same text.
func server(t testing.TB, answer string, change ...func(*Config)) (List, *[]string) {
	t.Helper()
	var log []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		log = append(log, r.Method+" "+r.URL.Path+" "+string(body))
		if _, err := io.WriteString(w, answer); err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(s.Close)
	c := Config{URLPrefix: s.URL + "/x/", FilterVerb: "filter", PrioritizeVerb: "prioritize", PreemptVerb: "preempt", BindVerb: "bind", Weight: 2}
	for _, f := range change {
		f(&c)
	}
	return listOf(t, c), &log
}

func listOf(t testing.TB, configs ...Config) List {
	t.Helper()
	if err := Validate(configs); err != nil {
		t.Fatal(err)
	}
	l, err := New(configs, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func cached(c *Config)    { c.NodeCacheCapable = true }
func ignorable(c *Config) { c.Ignorable = true }

func candidates(names ...string) (out []framework.Candidate) {
	for _, n := range names {
		out = append(out, framework.Candidate{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, Score: 100})
	}
	return out
}

func named(list []framework.Candidate) string {
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprint(c.Node.Name, ":", c.Score))
	}
	return strings.Join(out, " ")
}

func aPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
}

// TestWireFormat compares requests with what k8s.io/kube-scheduler/extender/v1 encodes.
func TestWireFormat(t *testing.T) {
	const pod = `{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":{"containers":null},"status":{}}`
	victim := &snapshot.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "uv"}}}
	options := []framework.Nomination{{Node: "a", Victims: []*snapshot.Pod{victim}, Violations: 1}}
	for name, tc := range map[string]struct {
		change []func(*Config)
		call   func(List)
		want   string
	}{
		"Names": {[]func(*Config){cached}, func(l List) { _, _, _ = l.Filter(t.Context(), aPod(), candidates("a", "b")) },
			`POST /x/filter {"Pod":` + pod + `,"Nodes":null,"NodeNames":["a","b"]}`},
		"Nodes": {nil, func(l List) { l.Prioritize(t.Context(), aPod(), candidates("a", "b")) },
			`POST /x/prioritize {"Pod":` + pod + `,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":{},"status":NODE},{"metadata":{"name":"b"},"spec":{},"status":NODE}]},"NodeNames":null}`},
		"MetaVictims": {[]func(*Config){cached}, func(l List) { _, _ = l.Preempt(t.Context(), &snapshot.Pod{Pod: aPod()}, options, nil) },
			`POST /x/preempt {"Pod":` + pod + `,"NodeNameToVictims":null,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"uv"}],"NumPDBViolations":1}}}`},
		"Victims": {nil, func(l List) { _, _ = l.Preempt(t.Context(), &snapshot.Pod{Pod: aPod()}, options, nil) },
			`POST /x/preempt {"Pod":` + pod + `,"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"name":"v","uid":"uv"},"spec":{"containers":null},"status":{}}],"NumPDBViolations":1}},"NodeNameToMetaVictims":null}`},
		"Binding": {nil, func(l List) { bind, _ := l.Binder(); _ = bind(t.Context(), aPod(), "a") },
			`POST /x/bind {"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			l, log := server(t, "{}", tc.change...)
			tc.call(l)
			const status = `{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}`
			if diff := cmp.Diff([]string{strings.ReplaceAll(tc.want, "NODE", status)}, *log); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	for name, tc := range map[string]struct {
		answer   string
		change   []func(*Config)
		want     string // the nodes that are left, or the error
		rejected string
	}{
		"Names":       {`{"NodeNames":["b"],"FailedNodes":{"a":"full"}}`, []func(*Config){cached}, "b:100", "a 0 full"},
		"Nodes":       {`{"Nodes":{"items":[{"metadata":{"name":"a"}}]},"FailedAndUnresolvableNodes":{"b":"broken"}}`, nil, "a:100", "b 1 broken"},
		"LowerCase":   {`{"nodenames":["a"],"failedNodes":{"b":"full"}}`, []func(*Config){cached}, "a:100", "b 0 full"},
		"Both":        {`{"FailedNodes":{"a":"full","b":"full"},"FailedAndUnresolvableNodes":{"b":"broken"}}`, nil, "", "a 0 full, b 1 broken"},
		"Nothing":     {`{}`, nil, "", "a 1 node(s) were left out by extender URL, b 1 node(s) were left out by extender URL"},
		"Error":       {`{"NodeNames":["a"],"Error":"no license"}`, []func(*Config){cached}, "no license", ""},
		"UnknownNode": {`{"NodeNames":["a","c"]}`, []func(*Config){cached}, `the response names a node "c" that is not in the request`, ""},
		"Malformed":   {`{"NodeNames":`, nil, "decode the response: unexpected end of JSON input", ""},
		"Null":        {`null`, nil, "", "a 1 node(s) were left out by extender URL, b 1 node(s) were left out by extender URL"},
		"Huge":        {`{"Error":"` + strings.Repeat("x", maxExtra+100_000) + `"}`, nil, "is longer than", ""},
		"Ignorable":   {`{"Error":"no license"}`, []func(*Config){ignorable}, "a:100 b:100", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := server(t, tc.answer, tc.change...)
			left, rejected, err := l.Filter(t.Context(), aPod(), candidates("a", "b"))
			got := named(left)
			if err != nil {
				got = err.Error()
			}
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			var texts []string
			for _, node := range []string{"a", "b"} {
				if s := rejected[node]; s != nil {
					texts = append(texts, fmt.Sprint(node, " ", int(s.Code), " ", s.Reasons[0]))
				}
			}
			if got := strings.ReplaceAll(strings.Join(texts, ", "), l[0].URLPrefix, "URL"); got != tc.rejected {
				t.Errorf("rejected %q, want %q", got, tc.rejected)
			}
		})
	}
}

func TestScoresAreScaledByTheWeight(t *testing.T) {
	for name, tc := range map[string]struct{ answer, want string }{
		"Scores":   {`[{"Host":"a","Score":10},{"Host":"b","Score":1},{"Host":"c","Score":5}]`, "a:300 b:120"},
		"Missing":  {`[{"Host":"a","Score":10}]`, "a:300 b:100"},
		"TooLarge": {`[{"Host":"a","Score":9223372036854775807}]`, "a:100 b:100"},
		"NoList":   {`{}`, "a:100 b:100"},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := server(t, tc.answer)
			list := candidates("a", "b")
			l.Prioritize(t.Context(), aPod(), list)
			if got := named(list); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func prioritized(name string, priority int32) *snapshot.Pod {
	return &snapshot.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority}}}
}

func TestPreemption(t *testing.T) {
	v, w, vip := prioritized("v", 1), prioritized("w", 1), prioritized("vip", 9)
	on := func(node string, uid types.UID) *snapshot.Pod {
		return map[string]*snapshot.Pod{"a/v": v, "a/w": w, "a/vip": vip, "b/w": w}[node+"/"+string(uid)]
	}
	options := []framework.Nomination{{Node: "a", Victims: []*snapshot.Pod{v}}, {Node: "b", Victims: []*snapshot.Pod{w}}}
	for name, tc := range map[string]struct{ answer, want string }{
		"One":         {`{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"w"}],"NumPDBViolations":3}}}`, "b w 3"},
		"OtherVictim": {`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"w"},{"UID":"w"}]}}}`, "a w 0"},
		"None":        {`{}`, ""},
		"NoVictim":    {`{"NodeNameToMetaVictims":{"a":{"Pods":[]}}}`, `expected at least one victim pod on node "a"`},
		"Null":        {`{"NodeNameToMetaVictims":{"a":{"Pods":[null]}}}`, `a victim on node "a" is null`},
		"Important":   {`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"vip"}]}}}`, `the victim "vip" is not a pod of lower priority on node a`},
		"Stranger":    {`{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"v"}]}}}`, `the victim "v" is not a pod of lower priority on node b`},
		"UnknownNode": {`{"NodeNameToMetaVictims":{"c":{"Pods":[{"UID":"v"}]}}}`, `a node "c" that is not in the request`},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := server(t, tc.answer)
			left, err := l.Preempt(t.Context(), prioritized("p", 5), options, on)
			got := ""
			for _, n := range left {
				got += n.Node
				for _, p := range n.Victims {
					got += " " + p.Name
				}
				got += fmt.Sprint(" ", n.Violations)
			}
			if err != nil {
				got = err.Error()
			}
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestBindingIsRefusedOrUncertain(t *testing.T) {
	for answer, want := range map[string]struct{ bound, refused bool }{
		`{}`: {true, false}, `{"Error":"no"}`: {false, true}, `nonsense`: {false, false},
	} {
		l, _ := server(t, answer)
		bind, _ := l.Binder()
		if err := bind(t.Context(), aPod(), "a"); (err == nil) != want.bound || Refused(err) != want.refused {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// Extenders that answer late, with another status or with a redirect fail.
func TestHostileServers(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	const short, long = 50 * time.Millisecond, time.Minute
	for name, tc := range map[string]struct {
		timeout time.Duration
		serve   http.HandlerFunc
		want    string
	}{
		"Slow": {short, func(_ http.ResponseWriter, r *http.Request) { <-done }, "Client.Timeout|deadline exceeded"},
		"Trickle": {short, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{")
			w.(http.Flusher).Flush()
			<-done
		}, "deadline exceeded"},
		"Status": {long, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }, "418"},
		"Redirect": {long, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, "307"},
		"Hangup": {long, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(tc.serve)
			t.Cleanup(s.CloseClientConnections)
			l := listOf(t, Config{URLPrefix: s.URL, FilterVerb: "f", HTTPTimeout: metav1.Duration{Duration: tc.timeout}})
			_, _, err := l.Filter(t.Context(), aPod(), candidates("a"))
			if err == nil || !matches(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func matches(text, anyOf string) bool {
	for _, part := range strings.Split(anyOf, "|") {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func TestCertificatesAreVerified(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"NodeNames":["a"]}`) }))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, tc := range map[string]struct {
		tls  *TLSConfig
		want bool
	}{
		"Unknown":  {nil, false},
		"CA":       {&TLSConfig{CAData: ca}, true},
		"Name":     {&TLSConfig{CAData: ca, ServerName: "elsewhere.test"}, false},
		"Insecure": {&TLSConfig{Insecure: true}, true},
	} {
		l := listOf(t, Config{URLPrefix: s.URL, FilterVerb: "f", EnableHTTPS: true, TLSConfig: tc.tls})
		if _, _, err := l.Filter(t.Context(), aPod(), candidates("a")); (err == nil) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExtendersAreAskedAboutTheirResources(t *testing.T) {
	l := listOf(t, Config{URLPrefix: "http://all"}, Config{URLPrefix: "http://some", ManagedResources: []ManagedResource{{Name: "example.com/gpu"}}})
	amount := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	plain, requests, limits := aPod(), aPod(), aPod()
	requests.Spec.Containers = []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Requests: amount}}}
	limits.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: amount}}}
	if a, b, c := len(l.For(plain)), len(l.For(requests)), len(l.For(limits)); a != 1 || b != 2 || c != 2 {
		t.Errorf("%d, %d and %d extenders are asked, want 1, 2 and 2", a, b, c)
	}
}

func TestConfigurationIsValidated(t *testing.T) {
	err := Validate([]Config{
		{URLPrefix: "ftp://x", PrioritizeVerb: "p", BindVerb: "b"},
		{URLPrefix: "http://x", EnableHTTPS: true, BindVerb: "b", ManagedResources: []ManagedResource{{Name: "cpu"}, {Name: "a.b/c"}, {Name: "a.b/c"}}},
		{URLPrefix: "http://x", TLSConfig: &TLSConfig{}, HTTPTimeout: metav1.Duration{Duration: -1}, Weight: maxWeight + 1},
		{URLPrefix: "https://x", TLSConfig: &TLSConfig{CertData: []byte("x"), Insecure: true}},
		{URLPrefix: "https://x", TLSConfig: &TLSConfig{CAFile: "/nowhere/ca.crt"}},
	})
	want := []string{
		`extenders[0].urlPrefix: "ftp://x" is not an HTTP or HTTPS URL without a query`,
		"extenders[0].weight: 0: an extender with a prioritizeVerb needs a weight of 1 to 1000000",
		"extenders[1].enableHTTPS: urlPrefix http://x is not an HTTPS URL",
		`extenders[1].managedResources[0].name: "cpu" is not the name of an extended resource`,
		"extenders[1].managedResources[2].name: extenders[1] manages a.b/c, too",
		"extenders[1].bindVerb: only one extender can bind pods",
		"extenders[2].tlsConfig: urlPrefix http://x is not an HTTPS URL",
		"extenders[2].weight: 1000001: an extender with a prioritizeVerb needs a weight of 1 to 1000000",
		"extenders[2].httpTimeout: -1ns is negative",
		"extenders[3].tlsConfig: the client certificate: tls: failed to find any PEM data in certificate input",
		"extenders[4].tlsConfig: open /nowhere/ca.crt: no such file or directory",
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

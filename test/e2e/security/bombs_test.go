package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// longScalar returns 220 kB of YAML that become 4 GB if aliases are expanded.
func longScalar() string {
	return "a: &a \"" + strings.Repeat("x", 100_000) + "\"\nb: [" + strings.Repeat("*a,", 40_000) + "*a]\n"
}

// manyContainers returns a pod of 150 kB that takes 70 MB when decoded.
func manyContainers() string {
	return `{"metadata":{"name":"q"},"spec":{"containers":[` + strings.Repeat("{},", 49_990) + `{}]}}`
}

// finalizers returns a JSON list of n finalizers.
func finalizers(n int, prefix string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%s.example.com/f%d"`, prefix, i)
	}
	return "[" + b.String()[1:] + "]"
}

func TestYAMLAliasExpansion(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	body := longScalar()
	a.wants(413, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", yamlType, body)
	a.wants(413, "POST", a.path("configmaps"), yamlType, body)
	a.wants(413, "PATCH", a.path("configmaps")+"/x?fieldManager=m", applyType, body)
	a.wants(413, "DELETE", a.path("configmaps")+"/x", yamlType, body)
	a.wants(201, "POST", a.path("configmaps"), yamlType, "metadata: {name: anchored}\ndata: &d {a: b}\nbinaryData: {<<: {}}\n")
	unharmed(t, b)
}

func TestQuadraticPatch(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	a.wants(201, "POST", a.path("configmaps"), jsonType, `{"metadata":{"name":"x","finalizers":`+finalizers(8000, "a")+`}}`)
	t.Cleanup(func() {
		_, err := client.For[*corev1.ConfigMap](admin).In(a.namespace).Patch(context.Background(), "x", mergeType, []byte(`{"metadata":{"finalizers":null}}`))
		check(t, err)
	})
	a.wants(413, "PATCH", a.path("configmaps")+"/x", smpType, `{"metadata":{"finalizers":`+finalizers(8000, "b")+`}}`)
	a.wants(200, "PATCH", a.path("configmaps")+"/x", smpType, `{"metadata":{"finalizers":`+finalizers(10, "b")+`}}`)
	unharmed(t, b)
}

func TestApplyTooLarge(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	var data strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&data, `,"k%d":""`, i)
	}
	a.wants(413, "PATCH", a.path("configmaps")+"/x?fieldManager=m", applyType,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{`+data.String()[1:]+`}}`)
	unharmed(t, b)
}

func TestConcurrentBombs(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	body := manyContainers()
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			if code, text := a.do("POST", a.path("pods"), jsonType, body); code != 422 && code != 429 && code != 504 {
				t.Errorf("%d %.200s", code, text)
			}
		})
	}
	unharmed(t, b)
	all.Wait()
	unharmed(t, b)
}

// A tenant's watches and events are limited; those of others are not affected.
func TestWatchFlood(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	var open []*http.Response
	for range 20 {
		all.Go(func() {
			for range 60 {
				resp, err := a.http.Do(a.request("GET", a.path("configmaps")+"?watch=true&timeoutSeconds=300", "", ""))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				codes[resp.StatusCode]++
				open = append(open, resp)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if codes[200] != 1000 || codes[429] != 200 {
		t.Errorf("%v", codes)
	}
	unharmed(t, b)
	for _, resp := range open {
		resp.Body.Close()
	}
}

func TestEventFlood(t *testing.T) {
	a, b := newTenant(t), newTenant(t)
	const most = 12_000
	var all sync.WaitGroup
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	for range 24 {
		all.Go(func() {
			for range most / 24 {
				select {
				case <-stop:
					return
				default:
				}
				if code, text := a.do("POST", a.path("events"), jsonType, event(a.namespace)); code == 429 {
					if !strings.Contains(text, "limit reached on type Namespace for key "+a.namespace) {
						t.Errorf("%s", text)
					}
					end()
				} else if code != 201 {
					t.Errorf("%d %.200s", code, text)
				}
			}
		})
	}
	all.Wait()
	select {
	case <-stop:
	default:
		t.Errorf("%d events were written", most)
	}
	b.wants(201, "POST", b.path("events"), jsonType, event(b.namespace))
	unharmed(t, b)
}

func event(namespace string) string {
	return `{"metadata":{"generateName":"flood-"},"involvedObject":{"kind":"Pod","namespace":"` + namespace + `","name":"p"},"reason":"Flood","type":"Normal"}`
}

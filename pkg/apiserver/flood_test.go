package apiserver_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/admission/eventratelimit"
)

// A watch whose client does not read does not hold copies of pending events.
func TestWatchFlood(t *testing.T) {
	s := serve(t, func(c *apiserver.Config) { c.MaxLongRunning, c.RequestTimeout = 200, time.Minute })
	for i := range 3 {
		must[any](s.world, 201, "POST", cms, jsonType, fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"a":"%s"}}`, i, strings.Repeat("x", 1000<<10)))
	}
	c := s.dial(t, 0)
	before := heap()
	for range 220 {
		c.open("GET", cms+"?watch=true&timeoutSeconds=600")
	}
	for heads := 0; heads < 220; {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := frame.(*http2.HeadersFrame); ok {
			heads++
		}
	}
	s.works()
	if grown := heap() - before; grown > 40*megabyte {
		t.Errorf("200 watches of three objects of 1 MB hold %d MB", grown/megabyte)
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestEventFlood(t *testing.T) {
	w := start(t, allowEverybody, func(c *apiserver.Config) {
		c.Admission.EventLimits = eventratelimit.Config{Limits: []eventratelimit.Limit{{Type: eventratelimit.Namespace, QPS: 1, Burst: 5, CacheSize: 10}}}
	})
	post := func(namespace string) int {
		return w.do("POST", "/api/v1/namespaces/"+namespace+"/events", jsonType,
			`{"metadata":{"generateName":"e-","namespace":"`+namespace+`"},"involvedObject":{"kind":"Pod","namespace":"`+namespace+`","name":"p"},"reason":"R","type":"Normal"}`, "X-User", "mallory").Code
	}
	codes := map[int]int{}
	for range 100 {
		codes[post("default")]++
	}
	if codes[201] < 5 || codes[201]+codes[429] != 100 || codes[429] == 0 {
		t.Errorf("%v", codes)
	}
	if code := post("kube-system"); code != 201 {
		t.Errorf("another namespace: %d", code)
	}
}

// The bytes that a user may write to the store are limited even if the requests
// are small: a patch of a few bytes rewrites the whole object.
func TestWriteFlood(t *testing.T) {
	w := start(t, allowEverybody, func(c *apiserver.Config) { c.MaxWriteRate = 100 << 10 })
	must[any](w, 201, "POST", cms, jsonType, `{"metadata":{"name":"big"},"data":{"a":"`+strings.Repeat("x", 1000<<10)+`"}}`)
	codes := map[int]int{}
	for i := range 20 {
		rec := w.do("PATCH", cms+"/big", mergeType, fmt.Sprintf(`{"data":{"b":"%d"}}`, i), "X-User", "mallory")
		codes[rec.Code]++
		if rec.Code == 429 && rec.Header().Get("Retry-After") == "" {
			t.Error("the refusal does not say when to come again")
		}
	}
	if codes[200] < 1 || codes[200] > 5 || codes[200]+codes[429] != 20 {
		t.Errorf("%v", codes)
	}
	must[corev1.ConfigMap](w, 200, "PATCH", cms+"/big", mergeType, `{"data":{"b":"alice"}}`, "X-User", "alice")
	must[metav1.Status](w, 200, "DELETE", cms+"/big", "", "", "X-User", "mallory")
}

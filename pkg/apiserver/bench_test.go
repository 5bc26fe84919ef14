package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// discard is a client that throws everything away.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func (w *world) drop(method, path, contentType, accept string, body io.Reader) {
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	d := &discard{header: http.Header{}}
	w.handler.ServeHTTP(d, r)
	if d.code >= 300 {
		w.Fatalf("%s %s: %d", method, path, d.code)
	}
}

const nodes = "/api/v1/nodes"

func benchNode(b *testing.B, s *scheme.Scheme, i int) string {
	data, err := s.Encode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("node-%05d", i),
			Labels: map[string]string{"kubernetes.io/hostname": fmt.Sprintf("node-%05d", i), "zone": fmt.Sprint(i % 3)},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24", ProviderID: strings.Repeat("x", 40)},
	}, scheme.Protobuf)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

func BenchmarkList10000(b *testing.B) {
	w, s := start(b), scheme.New()
	for i := range 10000 {
		w.drop("POST", nodes, protoType, protoType, strings.NewReader(benchNode(b, s, i)))
	}
	for _, accept := range []string{protoType, jsonType} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.drop("GET", nodes, "", accept, nil)
			}
		})
	}
	b.Run("of one label", func(b *testing.B) {
		for b.Loop() {
			w.drop("GET", nodes+"?labelSelector=kubernetes.io/hostname%3Dnode-00042", "", protoType, nil)
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.drop("GET", nodes+"/node-00042", "", protoType, nil)
		}
	})
}

func BenchmarkWrites(b *testing.B) {
	w := start(b)
	b.Run("create", func(b *testing.B) {
		b.ReportAllocs()
		body := benchConfigMap(b)
		for b.Loop() {
			w.drop("POST", cms, protoType, protoType, strings.NewReader(body))
		}
	})
	must[any](w, 201, "POST", cms, jsonType, configMap("x"))
	b.Run("merge patch", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			w.drop("PATCH", cms+"/x", mergeType, protoType, strings.NewReader(fmt.Sprintf(`{"data":{"a":"%d"}}`, i)))
		}
	})
}

func benchConfigMap(b *testing.B) string {
	data, err := scheme.New().Encode(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cm-"}, Data: map[string]string{"a": strings.Repeat("x", 200)},
	}, scheme.Protobuf)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

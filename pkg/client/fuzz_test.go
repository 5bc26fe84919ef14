package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// FuzzWatch decodes an arbitrary watch stream: it must end with an error, not with a
// panic, and never return an event with a nil object.
func FuzzWatch(f *testing.F) {
	raw, err := scheme.New().Encode(&corev1.Pod{}, scheme.Protobuf)
	if err != nil {
		f.Fatal(err)
	}
	e := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}}
	data, err := e.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{0, 0, 0, byte(len(data))}, data...), true)
	f.Add([]byte{0, 0, 0, 1}, true)
	f.Add([]byte(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`), false)
	s := scheme.New()
	f.Fuzz(func(t *testing.T, body []byte, proto bool) {
		media := scheme.JSON
		if proto {
			media = scheme.Protobuf
		}
		c, err := client.New(s, client.Config{Servers: []string{"http://a"}, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.For[*corev1.Pod](c).Watch(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for {
			e, err := w.Next()
			if err != nil {
				return
			}
			if e.Object == nil {
				t.Fatal("an event without an object")
			}
		}
	})
}

// FuzzObject decodes an arbitrary object or list.
func FuzzObject(f *testing.F) {
	s := scheme.New()
	for _, media := range []string{scheme.Protobuf, scheme.JSON} {
		for _, obj := range []runtime.Object{&corev1.Pod{}, &corev1.PodList{Items: []corev1.Pod{{}}}} {
			data, err := s.Encode(obj, media)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, media)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, media string) {
		c, err := client.New(s, client.Config{Servers: []string{"http://a"}, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		pods := client.For[*corev1.Pod](c).In("ns")
		if list, err := pods.List(context.Background(), metav1.ListOptions{}); err == nil {
			for _, p := range list.Items {
				_ = p.Name
			}
		}
		_, _ = pods.Get(context.Background(), "a") // any error will do
	})
}

package apiserver_test

import (
	"bytes"
	"io"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"podium/pkg/scheme"
)

const cborType = "application/cbor"

// cborClient encodes and decodes as upstream's clients do.
type cborClient struct {
	*world
	runtime.Serializer
}

func (c cborClient) encode(obj runtime.Object) string {
	c.Helper()
	var b bytes.Buffer
	if err := c.Encode(obj, &b); err != nil {
		c.Fatal(err)
	}
	return b.String()
}

func (c cborClient) decode(media string, data []byte, into runtime.Object) {
	c.Helper()
	if media != cborType {
		c.Fatalf("media type %q: %s", media, data)
	}
	if _, _, err := c.Decode(data, nil, into); err != nil {
		c.Fatalf("%v in %x", err, data)
	}
}

func startCBOR(t *testing.T, options ...upstream.Option) cborClient {
	s := scheme.New()
	return cborClient{start(t), upstream.NewSerializer(s.Scheme, s.Scheme, options...)}
}

func TestCBOR(t *testing.T) {
	c := startCBOR(t, upstream.Strict(true))
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"k": {0, 1, 255}}}
	const secrets = "/api/v1/namespaces/default/secrets"
	call := func(code int, method, path, media, body string, into runtime.Object) {
		t.Helper()
		rec := c.do(method, path, media, body, "Accept", cborType+", application/json;q=0.9")
		if rec.Code != code {
			t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
		}
		c.decode(rec.Header().Get("Content-Type"), rec.Body.Bytes(), into)
	}

	var got corev1.Secret
	call(201, "POST", secrets, cborType, c.encode(secret), &got)
	if !bytes.Equal(got.Data["k"], secret.Data["k"]) || got.UID == "" {
		t.Errorf("created %+v", got)
	}
	if stored := must[corev1.Secret](c.world, 200, "GET", secrets+"/s", "", ""); !bytes.Equal(stored.Data["k"], secret.Data["k"]) {
		t.Errorf("stored %+v", stored)
	}
	var list corev1.SecretList
	call(200, "GET", secrets, "", "", &list)
	if len(list.Items) != 1 || list.Items[0].Name != "s" {
		t.Errorf("list %+v", list)
	}
	apply, err := direct.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "labels": map[string]any{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	got = corev1.Secret{}
	call(200, "PATCH", secrets+"/s?fieldManager=me", "application/apply-patch+cbor", string(apply), &got)
	if got.Labels["a"] != "b" || len(got.Data) != 1 {
		t.Errorf("applied %+v", got)
	}
	var status metav1.Status
	call(404, "GET", secrets+"/absent", "", "", &status)
	if status.Reason != metav1.StatusReasonNotFound {
		t.Errorf("%+v", status)
	}
	options, err := direct.Marshal(&metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: new(got.UID)}})
	if err != nil {
		t.Fatal(err)
	}
	status = metav1.Status{}
	call(200, "DELETE", secrets+"/s", cborType, string(options), &status)
	if status.Status != metav1.StatusSuccess {
		t.Errorf("%+v", status)
	}
}

func TestCBORWatch(t *testing.T) {
	c := startCBOR(t, upstream.Transcode(false)) // as upstream's clients decode streams
	must[corev1.ConfigMap](c.world, 201, "POST", cms, jsonType, configMap("a"))
	server := httptest.NewServer(c.handler)
	t.Cleanup(server.Close) // after the watch ends
	w := c.watch(server.URL, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", cborType)
	if media := w.resp.Header.Get("Content-Type"); media != "application/cbor-seq" {
		t.Fatalf("media type %q", media)
	}
	frames := upstream.NewFramer().NewFrameReader(io.NopCloser(w.in))
	next := func() (string, *corev1.ConfigMap) {
		t.Helper()
		buf := make([]byte, 1<<16)
		n, err := frames.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		var e metav1.WatchEvent
		if _, _, err := c.Decode(buf[:n], nil, &e); err != nil {
			t.Fatal(err)
		}
		obj := &corev1.ConfigMap{}
		if _, _, err := c.Decode(e.Object.Raw, nil, obj); err != nil {
			t.Fatal(err)
		}
		return e.Type, obj
	}
	if kind, obj := next(); kind != "ADDED" || obj.Name != "a" || obj.Data["a"] != "1" {
		t.Errorf("%s %+v", kind, obj)
	}
	if kind, _ := next(); kind != "BOOKMARK" {
		t.Errorf("%s in place of the bookmark", kind)
	}
	must[corev1.ConfigMap](c.world, 201, "POST", cms, jsonType, configMap("b"))
	if kind, obj := next(); kind != "ADDED" || obj.Name != "b" {
		t.Errorf("%s %+v", kind, obj)
	}
}

package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/cbor"
	"podium/pkg/apiserver/wire"
)

const megabyte = 1 << 20

// peak runs f and returns the largest growth of the heap meanwhile. Frequent
// garbage collection makes the figure mostly live memory.
func peak(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := heap()
	most := before
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, heap())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(stop)
	<-done
	return most - before
}

// filled repeats text until the result is nearly as long as a body may be.
func filled(begin, text, end string) string {
	return begin + strings.Repeat(text, (3*megabyte-len(begin)-len(end))/len(text)) + end
}

// keys returns a JSON object with n distinct keys, each made by format.
func keys(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return "{" + b.String() + "}"
}

// cborKeys returns n pairs of a CBOR map.
func cborKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\x67k%06d\x00", i)
	}
	return b.String()
}

// finalizers returns a JSON list of n finalizers.
func finalizers(n int, prefix string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%s.example.com/f%d"`, prefix, i)
	}
	return "[" + b.String()[1:] + "]"
}

// protoPod returns a protobuf Pod of about size bytes, whose containers take
// two bytes each.
func protoPod(size int) string { return protoPodOf("\x12\x00", size/2) }

// protoPodOf returns a protobuf Pod with n containers, each a field 2 of
// PodSpec.
func protoPodOf(container string, n int) string {
	spec := strings.Repeat(container, n)
	pod := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte(spec))
	raw := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), pod)
	return "k8s\x00" + string(raw)
}

// zeros returns a gzip file of a megabyte that expands to a gigabyte; it
// consists of many members.
func zeros(t *testing.T) string {
	t.Helper()
	var part bytes.Buffer
	z := gzip.NewWriter(&part)
	if _, err := z.Write(make([]byte, 8*megabyte)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return strings.Repeat(part.String(), 128)
}

// claimed returns the memory that the server claims for a body: for CBOR, that of the
// JSON it becomes.
func claimed(body, media string) int64 {
	data := []byte(body)
	if media == cbor.Media || media == cbor.Apply {
		text, err := cbor.ToJSON(data, wire.MaxBody)
		if err != nil {
			return int64(len(data))
		}
		data, media = text, jsonType
	}
	cost, _ := budget.Cost(data, media)
	return cost
}

// The server answers any hostile body with a short 4xx error, and uses little
// more memory than the body's size.
func TestHostileBodies(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", cms, jsonType, configMap("x"))
	const pods = "/api/v1/namespaces/default/pods"
	must[any](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
	must[any](w, 201, "POST", pods, jsonType, barePod("p", ""))

	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	merge := "a0: &a0 {k: v}\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
		merge += fmt.Sprintf("a%d: &a%d {<<: [%s]}\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	longScalar := "a: &a \"" + strings.Repeat("x", 100_000) + "\"\nb: [" + strings.Repeat("*a,", 40_000) + "*a]\n"
	must[any](w, 201, "POST", cms, jsonType, `{"metadata":{"name":"finalizers","finalizers":`+finalizers(8000, "a")+`}}`)
	var copies []string
	copies = append(copies, `{"op":"add","path":"/data/a0","value":"`+strings.Repeat("x", 1000)+`"}`, `{"op":"add","path":"/metadata/annotations","value":{}}`)
	for i := range 60 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/b%d"}`, i))
	}
	for _, tc := range []struct {
		name, method, path, contentType, body string
		header                                []string
	}{
		{name: "10^6 keys, JSON", contentType: jsonType, body: `{"data":` + keys(1e6, `"k%d":""`) + `}`},
		{name: "10^6 keys, YAML", contentType: yamlType, body: `data: ` + keys(1e6, `"k%d":""`)},
		{name: "10^6 keys, apply", method: "PATCH", path: cms + "/x?fieldManager=m", contentType: applyType, body: `data: ` + keys(1e6, `"k%d":""`)},
		{name: "10^6 keys, merge", method: "PATCH", path: cms + "/x", contentType: mergeType, body: `{"data":` + keys(1e6, `"k%d":""`) + `}`},
		{name: "as many bad keys as fit", contentType: jsonType, body: `{"metadata":{"name":"y"},"data":` + keys(220000, `"/%d":""`) + `}`},
		{name: "as many bad labels as fit", contentType: jsonType, body: `{"metadata":{"name":"y","labels":` + keys(220000, `"/%d":""`) + `}}`},
		{name: "as many bad keys as fit, merge", method: "PATCH", path: cms + "/x", contentType: mergeType, body: `{"data":` + keys(220000, `"/%d":""`) + `}`},
		{name: "as many unknown fields as fit, strict", path: cms + "?fieldValidation=Strict", contentType: jsonType, body: keys(220000, `"f%d":1`)},
		{name: "unknown fields, YAML", path: cms + "?fieldValidation=Strict", contentType: yamlType, body: keys(80000, `"f%d":1`)},
		{name: "as many containers as fit", path: pods, contentType: jsonType, body: filled(`{"metadata":{"name":"q"},"spec":{"containers":[`, `{},`, `{}]}}`)},
		{name: "as many containers as are read", path: pods, contentType: jsonType, body: `{"metadata":{"name":"q"},"spec":{"containers":[` + strings.Repeat("{},", 49990) + `{}]}}`},
		{name: "containers of two bytes", path: pods, contentType: protoType, body: protoPod(3 * megabyte / 2)},
		{name: "containers of YAML", path: pods, contentType: yamlType, body: "metadata: {name: q}\nspec:\n  containers:\n" + strings.Repeat("  - a:\n", 100000)},
		{name: "containers, applied", method: "PATCH", path: pods + "/p?fieldManager=m", contentType: applyType, body: filled(`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[`, `{},`, `{}]}}`)},
		{name: "containers, patched", method: "PATCH", path: pods + "/p", contentType: jsonPatch, body: filled(`[{"op":"replace","path":"/spec/containers","value":[`, `{},`, `{}]}]`)},
		{name: "as many volumes as fit, patched", method: "PATCH", path: pods + "/p", contentType: smpType, body: `{"spec":{"volumes":[` + strings.TrimSuffix(strings.Repeat(`{"name":"/"},`, 20000), ",") + `]}}`},
		{name: "nested objects", contentType: jsonType, body: filled("", `{"a":`, "")},
		{name: "nested lists", contentType: jsonType, body: filled("", `[`, "")},
		{name: "nested lists in a field", contentType: jsonType, body: filled(`{"data":`, `[`, "")},
		{name: "nested, closed", contentType: jsonType, body: `{"x":` + strings.Repeat("[", megabyte) + strings.Repeat("]", megabyte) + "}"},
		{name: "nested lists, YAML", contentType: yamlType, body: "a: " + strings.Repeat("[", 900_000)},
		{name: "nested maps, YAML", contentType: yamlType, body: strings.Repeat("{a: ", 12_000)},
		{name: "nested sequences, YAML", contentType: yamlType, body: strings.Repeat("- ", 49_000)},
		{name: "nested complex keys, YAML", contentType: yamlType, body: strings.Repeat("? ", 450_000)},
		{name: "nested, apply", method: "PATCH", path: cms + "/x?fieldManager=m", contentType: applyType, body: "data: " + strings.Repeat("[", 900_000)},
		{name: "nested, merge", method: "PATCH", path: cms + "/x", contentType: mergeType, body: filled("", `{"data":`, "")},
		{name: "nested, JSON patch", method: "PATCH", path: cms + "/x", contentType: jsonPatch, body: filled(`[{"op":"add","path":"/data/a","value":`, `[`, "")},
		{name: "nested managed fields", contentType: jsonType, body: `{"metadata":{"name":"y","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` + strings.Repeat(`{"f:a":`, 9000) + "{}" + strings.Repeat("}", 8990) + `}]}}`},
		{name: "YAML aliases", contentType: yamlType, body: bomb},
		{name: "YAML aliases, apply", method: "PATCH", path: cms + "/x?fieldManager=m", contentType: applyType, body: bomb},
		{name: "a YAML alias of a long scalar", contentType: yamlType, body: longScalar},
		{name: "a YAML alias of a long scalar, review", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", contentType: yamlType, body: longScalar},
		{name: "a YAML alias of a long scalar, apply", method: "PATCH", path: cms + "/x?fieldManager=m", contentType: applyType, body: longScalar},
		{name: "a YAML alias of a long scalar, update", method: "PUT", path: cms + "/x", contentType: yamlType, body: longScalar},
		{name: "a YAML alias of a long scalar, delete", method: "DELETE", path: cms + "/x", contentType: yamlType, body: longScalar},
		{name: "a YAML alias in flow style", contentType: yamlType, body: "{a: &a \"" + strings.Repeat("x", 100_000) + "\", b: [" + strings.Repeat("*a,", 40_000) + "*a]}"},
		{name: "numbers for containers", path: pods, contentType: jsonType, body: filled(`{"metadata":{"name":"q"},"spec":{"containers":[`, `0,`, `0]}}`)},
		{name: "nulls for containers", path: pods, contentType: jsonType, body: filled(`{"metadata":{"name":"q"},"spec":{"containers":[`, `null,`, `0]}}`)},
		{name: "empty items for containers, YAML", path: pods, contentType: yamlType, body: "metadata: {name: q}\nspec:\n  containers:\n" + strings.Repeat("  -\n", 200_000)},
		{name: "containers of short names", path: pods, contentType: protoType, body: protoPodOf("\x12\x06\x0a\x04abcd", 3*megabyte/8)},
		{name: "finalizers, patched", method: "PATCH", path: cms + "/finalizers", contentType: smpType, body: `{"metadata":{"finalizers":` + finalizers(8000, "b") + `}}`},
		{name: "finalizers, ordered", method: "PATCH", path: cms + "/finalizers", contentType: smpType, body: `{"metadata":{"$setElementOrder/finalizers":` + finalizers(8000, "a") + `}}`},
		{name: "more keys than can be stored, apply", method: "PATCH", path: cms + "/x?fieldManager=m", contentType: applyType, body: `{"kind":"ConfigMap","apiVersion":"v1","data":` + keys(100_000, `"k%d":""`) + `}`},
		{name: "insertions at the front, JSON patch", method: "PATCH", path: cms + "/finalizers", contentType: jsonPatch, body: `[` + strings.Repeat(`{"op":"add","path":"/metadata/finalizers/0","value":"x/y"},`, 9998) + `{"op":"test","path":"/metadata/finalizers","value":1}]`},
		{name: "YAML merges", contentType: yamlType, body: merge},
		{name: "a YAML alias of itself", contentType: yamlType, body: "a: &a [*a]\n"},
		{name: "YAML anchors", contentType: yamlType, body: "a: [" + strings.Repeat("&a x,", 180_000) + "*a"},
		{name: "gzip", contentType: jsonType, body: zeros(t), header: []string{"Content-Encoding", "gzip"}},
		{name: "gzip, protobuf", contentType: protoType, body: zeros(t), header: []string{"Content-Encoding", "gzip"}},
		{name: "protobuf that promises more", contentType: protoType, body: "k8s\x00\x0a\x00\x12\xff\xff\xff\xff\x07"},
		{name: "protobuf of groups", contentType: protoType, body: "k8s\x00" + strings.Repeat("\x0b", 3*megabyte-8)},
		{name: "JSON patch that copies what it copied", method: "PATCH", path: cms + "/x", contentType: jsonPatch, body: "[" + strings.Join(copies, ",") + "]"},
		{name: "JSON patch of many operations", method: "PATCH", path: cms + "/x", contentType: jsonPatch, body: filled("[", `{"op":"test","path":"/a"},`, `{}]`)},
		{name: "a number of many digits", contentType: jsonType, body: filled(`{"data":{"a":`, "9", "}}")},
		{name: "a number of a great exponent", contentType: yamlType, body: "metadata: {name: y, generation: 1e999999999}\n"},
		{name: "a quantity of a great exponent", path: pods, contentType: jsonType, body: strings.Replace(barePod("q", ""), `"spec":{`, `"spec":{"overhead":{"cpu":"1e-999999999"},`, 1)},
		{name: "a quantity in a merge patch", method: "PATCH", path: pods + "/p", contentType: mergeType, body: `{"spec":{"overhead":{"cpu":"1\u0065-999999999"}}}`},
		{name: "a quantity in a JSON patch", method: "PATCH", path: pods + "/p", contentType: jsonPatch, body: `[{"op":"add","path":"/spec/overhead","value":{"cpu":"1e999999999"}}]`},
		{name: "a quantity in an applied configuration", method: "PATCH", path: pods + "/r?fieldManager=m", contentType: applyType, body: strings.Replace(barePod("r", ""), `"spec":{`, `"apiVersion":"v1","kind":"Pod","spec":{"overhead":{"cpu":"1e-999999999"},`, 1)},
		{name: "as many items as are read, CBOR", contentType: cbor.Media, body: "\xa1\x64data\x9a\x00\x2f\x00\x00" + strings.Repeat("\x00", 0x2f0000)},
		{name: "as many items as fit, CBOR", contentType: cbor.Media, body: "\xa1\x64data\x9a\x00\x17\x00\x00" + strings.Repeat("\x00", 0x170000)},
		{name: "as many keys as fit, CBOR", contentType: cbor.Media, body: "\xbf" + cborKeys(200_000) + "\xff"},
		{name: "nested lists, CBOR", contentType: cbor.Media, body: strings.Repeat("\x81", 3*megabyte-1)},
		{name: "text that promises more, CBOR", method: "PATCH", path: cms + "/x?fieldManager=m", contentType: cbor.Apply, body: "\x7b\x7f\xff\xff\xff\xff\xff\xff\xff"},
		{name: "bytes that are no text", contentType: jsonType, body: filled("", "\xff", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			method, path := tc.method, tc.path
			if method == "" {
				method = "POST"
			}
			if path == "" {
				path = cms
			}
			for _, length := range []int64{int64(len(tc.body)), -1} { // -1: chunked, without a Content-Length
				if length == -1 && len(tc.body) <= wire.MaxBody {
					continue // read the same way
				}
				r := httptest.NewRequest(method, path, strings.NewReader(tc.body))
				r.ContentLength = length
				r.Header.Set("Content-Type", tc.contentType)
				for i := 0; i+1 < len(tc.header); i += 2 {
					r.Header.Set(tc.header[i], tc.header[i+1])
				}
				rec := httptest.NewRecorder()
				began := time.Now()
				grown := peak(func() { w.handler.ServeHTTP(rec, r) })
				t.Logf("%d bytes: %d, %d bytes of answer, %d MB held, %v: %.100s", len(tc.body), rec.Code, rec.Body.Len(), grown/megabyte, time.Since(began).Round(time.Millisecond), rec.Body)
				if rec.Code < 400 || rec.Code >= 500 {
					t.Errorf("%d, want 4xx: %.300s", rec.Code, rec.Body)
				}
				if rec.Body.Len() > megabyte {
					t.Errorf("the answer has %d bytes", rec.Body.Len())
				}
				if cost := claimed(tc.body, tc.contentType); grown > uint64(cost)+64*megabyte {
					t.Errorf("%d MB were held, %d MB were claimed", grown/megabyte, cost/megabyte)
				}
			}
		})
	}
}

// Bodies that expand a hundredfold are decoded in turns: together they stay
// within the budget, and small requests of other users do not wait.
func TestConcurrentBombs(t *testing.T) {
	const memory, bombs = 256 * megabyte, 16
	w := start(t, allowEverybody, func(c *apiserver.Config) { c.Memory, c.MaxWrites, c.MaxReads = memory, 200, 400 })
	const pods = "/api/v1/namespaces/default/pods"
	must[any](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
	body := `{"metadata":{"name":"q"},"spec":{"containers":[` + strings.Repeat("{},", 49990) + `{}]}}`
	var all sync.WaitGroup
	grown := peak(func() {
		for range bombs {
			all.Go(func() {
				// On a slow machine some time out while they wait.
				if rec := w.do("POST", pods, jsonType, body, "X-User", "mallory"); rec.Code < 400 || rec.Code >= 500 && rec.Code != 504 {
					t.Errorf("%d %.200s", rec.Code, rec.Body)
				}
			})
		}
		if rec := w.do("POST", cms, jsonType, configMap("small"), "X-User", "alice"); rec.Code != 201 {
			t.Errorf("%d %.200s", rec.Code, rec.Body)
		}
		all.Wait()
	})
	t.Logf("%d MB were held", grown/megabyte)
	if grown > 2*memory {
		t.Errorf("%d MB were held by %d bodies, the budget is %d MB", grown/megabyte, bombs, memory/megabyte)
	}
}

func allowEverybody(c *apiserver.Config) { c.Authorizer = everybody() }

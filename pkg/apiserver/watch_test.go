package apiserver_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// watching is an open watch over a real connection.
type watching struct {
	testing.TB
	resp *http.Response
	in   *bufio.Reader
	s    *scheme.Scheme
}

// listen serves on a real connection until all watches of the test have ended.
func (w *world) listen() (url string) {
	web := httptest.NewServer(w.handler)
	w.Cleanup(web.Close)
	return web.URL
}

func (w *world) watch(url, query, accept string) *watching {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	w.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", url+cms+"?watch=true&"+query, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		w.Fatalf("watch: %d %s", resp.StatusCode, text)
	}
	return &watching{TB: w, resp: resp, in: bufio.NewReader(resp.Body), s: scheme.New()}
}

// next returns one event as "TYPE name", and its object.
func (w *watching) next() (string, *corev1.ConfigMap, error) {
	var event metav1.WatchEvent
	media := jsonType
	if strings.HasPrefix(w.resp.Header.Get("Content-Type"), protoType) {
		media = protoType
		var size [4]byte
		if _, err := io.ReadFull(w.in, size[:]); err != nil {
			return "", nil, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(w.in, frame); err != nil {
			return "", nil, err
		}
		if err := event.Unmarshal(frame); err != nil {
			return "", nil, err
		}
	} else {
		line, err := w.in.ReadBytes('\n')
		if err != nil {
			return "", nil, err
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return "", nil, err
		}
	}
	obj, _, err := w.s.Decode(event.Object.Raw, media, nil)
	if err != nil {
		return "", nil, err
	}
	if status, ok := obj.(*metav1.Status); ok {
		return fmt.Sprintf("%s %d %s", event.Type, status.Code, status.Reason), nil, nil
	}
	cm := obj.(*corev1.ConfigMap)
	return strings.TrimSpace(event.Type + " " + cm.Name), cm, nil
}

func (w *watching) want(want ...string) (last *corev1.ConfigMap) {
	w.Helper()
	var got []string
	for range want {
		what, cm, err := w.next()
		if err != nil {
			w.Fatalf("after %q: %v", got, err)
		}
		got, last = append(got, what), cm
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatal(diff)
	}
	return last
}

func revision(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWatch(t *testing.T) {
	w := start(t)
	url := w.listen()
	fill(w, 2)
	rv := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "").ResourceVersion
	for _, accept := range []string{jsonType, protoType} {
		t.Run(accept, func(t *testing.T) {
			from := w.watch(url, "resourceVersion="+rv, accept)
			initial := w.watch(url, "", accept)
			list := w.watch(url, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept)
			now := w.watch(url, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", accept)
			even := w.watch(url, "labelSelector=even%3Dtrue&resourceVersion="+rv, accept)

			initial.want("ADDED cm-00", "ADDED cm-01")
			end := list.want("ADDED cm-00", "ADDED cm-01", "BOOKMARK")
			if end.Annotations[metav1.InitialEventsAnnotationKey] != "true" || end.ResourceVersion == "" {
				t.Errorf("the end of the list: %+v", end.ObjectMeta)
			}
			must[any](w, 201, "POST", cms, jsonType, `{"metadata":{"name":"new"}}`)
			must[any](w, 200, "PATCH", cms+"/new", mergeType, `{"metadata":{"labels":{"even":"true"}}}`)
			must[any](w, 200, "PATCH", cms+"/new", mergeType, `{"data":{"a":"b"}}`)
			must[any](w, 200, "PATCH", cms+"/new", mergeType, `{"metadata":{"labels":{"even":"false"}}}`)
			must[any](w, 200, "DELETE", cms+"/new", "", "")
			for _, all := range []*watching{from, initial, list, now} {
				gone := all.want("ADDED new", "MODIFIED new", "MODIFIED new", "MODIFIED new", "DELETED new")
				if gone.Data["a"] != "b" || revision(t, gone.ResourceVersion) <= revision(t, rv) {
					t.Errorf("deleted: %+v", gone)
				}
			}
			even.want("ADDED new", "MODIFIED new", "DELETED new")
			rv = must[corev1.ConfigMapList](w, 200, "GET", cms, "", "").ResourceVersion
		})
	}
}

func TestWatchEnds(t *testing.T) {
	w := start(t)
	url := w.listen()
	if _, _, err := w.watch(url, "timeoutSeconds=1&resourceVersion=1", jsonType).next(); !errors.Is(err, io.EOF) {
		t.Errorf("a watch of a second ended with %v", err)
	}
}

func TestWatchesEndWhenTheServerDoes(t *testing.T) {
	w := start(t)
	url := w.listen()
	rv := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "").ResourceVersion
	open := w.watch(url, "resourceVersion="+rv, jsonType)
	w.stop()
	if _, _, err := open.next(); !errors.Is(err, io.EOF) {
		t.Errorf("the watch ended with %v, want a proper end", err)
	}
	if rec := w.do("GET", "/readyz", "", ""); rec.Code != 500 {
		t.Errorf("readiness after the end: %d", rec.Code)
	}
}

func TestWatchOfATable(t *testing.T) {
	w := start(t)
	url := w.listen()
	fill(w, 2)
	open := w.watch(url, "", "application/json;as=Table;g=meta.k8s.io;v=v1")
	for i, name := range []string{"cm-00", "cm-01"} {
		var event struct {
			Type   string
			Object metav1.Table
		}
		line, err := open.in.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &event)
		}
		if err != nil {
			t.Fatal(err)
		}
		if event.Type != "ADDED" || event.Object.Rows[0].Cells[0] != name || (len(event.Object.ColumnDefinitions) > 0) != (i == 0) {
			t.Errorf("event %d: %s", i, line)
		}
	}
}

func TestWatchOfMetadata(t *testing.T) {
	w := start(t)
	url := w.listen()
	fill(w, 1)
	open := w.watch(url, "", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	line, err := open.in.ReadString('\n')
	if err != nil || !strings.Contains(line, `"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"cm-00"`) {
		t.Errorf("%v %s", err, line)
	}
}

// TestWatchOfManyEventsAtOnce covers events that are written together, among them one
// that is larger than what the server joins.
func TestWatchOfManyEventsAtOnce(t *testing.T) {
	w := start(t)
	url := w.listen()
	rv := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "").ResourceVersion
	const events = 40
	var want []string
	for i := range events {
		name, size := fmt.Sprintf("cm-%02d", i), 1+i*997%5000
		if i == events/2 {
			size = 100 << 10
		}
		must[any](w, 201, "POST", cms, jsonType, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, strings.Repeat("x", size)))
		want = append(want, "ADDED "+name)
	}
	for _, accept := range []string{jsonType, protoType} {
		for _, query := range []string{"resourceVersion=" + rv, ""} {
			w.watch(url, query, accept).want(want...)
		}
		w.watch(url, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept).want(append(want, "BOOKMARK")...)
	}
}

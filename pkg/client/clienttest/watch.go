package clienttest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/scheme"
)

// list returns the protobuf form of a list: its fields are the same for every kind.
func (s *Server) list(t target, sel selection) (any, error) {
	meta, err := (&metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.revision, 10)}).Marshal()
	if err != nil {
		return nil, err
	}
	raw := field(nil, 1, meta)
	for _, obj := range s.selected(sel) {
		item, err := scheme.BareProto(obj)
		if err != nil {
			return nil, err
		}
		raw = field(raw, 2, item)
	}
	gvk := t.kind.GroupVersionKind
	gvk.Kind += "List"
	return scheme.TypedProto(gvk, raw)
}

func field(msg []byte, number byte, value []byte) []byte {
	msg = append(msg, number<<3|2)
	msg = binary.AppendUvarint(msg, uint64(len(value)))
	return append(msg, value...)
}

func (s *Server) patch(t target, pt types.PatchType, patch []byte) (any, error) {
	old, err := s.get(t)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch pt {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, patch, t.kind.New())
	default:
		err = fmt.Errorf("patch of type %s", pt)
	}
	if err != nil {
		return nil, err
	}
	obj := t.kind.New()
	if err := json.Unmarshal(after, obj); err != nil {
		return nil, err
	}
	return s.replace(t, obj)
}

// watcher is the response body of a watch. Read encodes the events.
type watcher struct {
	s     *Server
	ctx   context.Context
	kind  *scheme.Kind
	sel   selection
	epoch int
	seen  int64
	buf   bytes.Buffer
}

func (w *watcher) Close() error { return nil }

func (w *watcher) Read(p []byte) (int, error) {
	for w.buf.Len() == 0 {
		w.s.mu.Lock()
		broken := w.epoch != w.s.epoch
		changed := w.s.changed
		if !broken {
			w.collect()
		}
		w.s.mu.Unlock()
		if broken {
			return 0, io.EOF
		}
		if w.buf.Len() > 0 {
			break
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
	return w.buf.Read(p)
}

// collect encodes the changes since the last call. The server's lock must be held.
func (w *watcher) collect() {
	for _, c := range w.s.log[w.seen:] {
		if c.resource != w.sel.resource {
			continue
		}
		was, is := w.sel.matches(c.old), w.sel.matches(c.new)
		switch {
		case is && was:
			w.add(watch.Modified, c.new)
		case is:
			w.add(watch.Added, c.new)
		case was:
			last := c.old.DeepCopyObject().(scheme.Object)
			last.SetResourceVersion(strconv.FormatInt(c.revision, 10))
			w.add(watch.Deleted, last)
		}
	}
	w.seen = int64(len(w.s.log)) // each revision is one change
}

func (w *watcher) bookmark(revision int64) {
	obj := w.kind.New()
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	w.add(watch.Bookmark, obj)
}

func (w *watcher) add(t watch.EventType, obj scheme.Object) {
	raw, err := w.s.scheme.Encode(obj, scheme.Protobuf)
	if err != nil {
		panic(err) // every served kind has a protobuf form
	}
	data, err := (&metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: raw}}).Marshal()
	if err != nil {
		panic(err)
	}
	w.buf.Write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
	w.buf.Write(data)
}

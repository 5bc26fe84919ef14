package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/scheme"
)

// Accepted media types: protobuf first.
const (
	acceptObject = scheme.Protobuf + "," + scheme.JSON
	acceptWatch  = scheme.Protobuf + ";stream=watch," + scheme.JSON + ";stream=watch," + acceptObject
)

// maxFrame is the maximum size of a watch event in bytes, above the limit of an object.
const maxFrame = 64 << 20

var noKind schema.GroupVersionKind

// Event is one change. The object of a Bookmark has only a resourceVersion and
// annotations.
type Event[T scheme.Object] struct {
	Type   watch.EventType
	Object T
}

// Watch is a running watch. Next must be called by one goroutine at a time; Stop may be
// called concurrently and more than once.
type Watch[T scheme.Object] struct {
	next func() (Event[T], error)
	stop func()
}

// NewWatch returns a watch made of two functions, for sources other than a server (tests
// and simulations). stop must make next return.
func NewWatch[T scheme.Object](next func() (Event[T], error), stop func()) *Watch[T] {
	return &Watch[T]{next: next, stop: sync.OnceFunc(stop)}
}

// Next blocks until there is an event. It returns a *apierrors.StatusError for an ERROR
// event (410, say), io.EOF when the server ended the watch normally, the context's
// error, or the error of the connection.
func (w *Watch[T]) Next() (Event[T], error) { return w.next() }

// Stop ends the watch and makes a blocked Next return.
func (w *Watch[T]) Stop() { w.stop() }

// Watch opens a watch. It ends with ctx.
func (r Resource[T]) Watch(ctx context.Context, opts metav1.ListOptions) (*Watch[T], error) {
	opts.Watch = true
	ctx, cancel := context.WithCancel(ctx)
	resp, err := r.client.Stream(ctx, Request{
		Path:   r.collection(r.namespace),
		Query:  ListQuery(opts),
		Header: http.Header{"Accept": {acceptWatch}},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	var frames func() (metav1.WatchEvent, error)
	media := mediaType(resp.Header)
	if media == scheme.Protobuf {
		frames = protoFrames(resp.Body)
	} else {
		frames = jsonFrames(resp.Body)
	}
	next := func() (Event[T], error) {
		frame, err := frames()
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return Event[T]{}, err
		}
		return decodeEvent(r, frame, media)
	}
	stop := func() {
		cancel()
		resp.Body.Close()
	}
	return NewWatch(next, stop), nil
}

func decodeEvent[T scheme.Object](r Resource[T], frame metav1.WatchEvent, media string) (Event[T], error) {
	switch t := watch.EventType(frame.Type); t {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		obj := r.kind.New().(T)
		if err := r.client.decodeInto(frame.Object.Raw, media, obj); err != nil {
			return Event[T]{}, err
		}
		return Event[T]{Type: t, Object: obj}, nil
	case watch.Error:
		var status metav1.Status
		if err := r.client.decodeInto(frame.Object.Raw, media, &status); err != nil {
			return Event[T]{}, err
		}
		return Event[T]{}, &apierrors.StatusError{ErrStatus: status}
	default:
		return Event[T]{}, fmt.Errorf("watch: event of type %q", frame.Type)
	}
}

// protoFrames returns a function that reads length-delimited watch events. It returns
// io.EOF at the end of the stream between two frames, io.ErrUnexpectedEOF within one. A
// frame's bytes are valid until the next call.
func protoFrames(body io.Reader) func() (metav1.WatchEvent, error) {
	r := bufio.NewReaderSize(body, 16<<10)
	var buf []byte
	return func() (metav1.WatchEvent, error) {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return metav1.WatchEvent{}, err
		}
		size := int(binary.BigEndian.Uint32(head[:]))
		if size > maxFrame {
			return metav1.WatchEvent{}, fmt.Errorf("watch: a frame of %d bytes", size)
		}
		var err error
		if buf, err = readFrame(r, buf[:0], size); err != nil {
			return metav1.WatchEvent{}, err
		}
		return parseFrame(buf)
	}
}

// readFrame appends size bytes to buf, growing it as they arrive: a wrong length must not
// allocate memory for bytes that were never sent.
func readFrame(r io.Reader, buf []byte, size int) ([]byte, error) {
	const step = 1 << 20
	for size > 0 {
		n := min(size, step)
		at := len(buf)
		if cap(buf) < at+n {
			buf = append(buf, make([]byte, n)...)
		}
		buf = buf[:at+n]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
		size -= n
	}
	return buf, nil
}

func parseFrame(frame []byte) (metav1.WatchEvent, error) {
	var e metav1.WatchEvent
	err := fields(frame, func(n protowire.Number, b []byte) error {
		switch n {
		case watchTypeField:
			e.Type = string(b)
		case watchObjectField:
			return fields(b, func(n protowire.Number, b []byte) error {
				if n == rawField {
					e.Object = runtime.RawExtension{Raw: b}
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return e, fmt.Errorf("watch: %w", err)
	}
	return e, nil
}

func jsonFrames(body io.Reader) func() (metav1.WatchEvent, error) {
	d := json.NewDecoder(body)
	return func() (metav1.WatchEvent, error) {
		var e metav1.WatchEvent
		err := d.Decode(&e)
		return e, err
	}
}

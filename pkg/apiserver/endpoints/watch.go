package endpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// minWatch is the minimum duration of a watch without timeoutSeconds; the maximum
// is twice that.
const minWatch = 30 * time.Minute

// watch streams the changes of a namespace, or of all namespaces, until the watch
// ends.
func (c *call) watch() error {
	f, err := wire.Negotiate(c.r, wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadata, wire.PartialObjectMetadataList}, Stream: true, TextOnly: c.res.text})
	if err != nil {
		return err
	}
	o, err := c.listOptions(true)
	if err != nil {
		return err
	}
	wo, err := c.watchOptions(o)
	if err != nil {
		return err
	}
	lasts, err := c.res.api.watchTime(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, lasts)
	defer cancel()
	defer context.AfterFunc(c.res.api.Closing, cancel)()

	s := c.newStream(f, o)
	if c.res.converts() && !onlyMetadata(f) {
		s.selected, wo.Labels, wo.Fields = &o, nil, identity(wo.Fields)
	}
	if wo.Initial {
		s.begin()
		req := request.From(c.ctx)
		if s.turn, err = req.Turns.Acquire(ctx, req.Flow, 1); err != nil {
			return nil // the watch ended while it waited for its turn
		}
		defer func() { s.turn() }()
	}
	watcher, err := c.res.cache.Watch(ctx, wo)
	if err != nil {
		if errors.Is(err, watchcache.ErrRemoved) && s.begun {
			return nil
		} else if errors.Is(err, watchcache.ErrRemoved) {
			return unknownResource(c.info)
		}
		if errors.Is(err, storage.ErrFuture) {
			err = c.res.tooLargeVersion(c.ctx, wo.After)
		}
		return s.refuse(err, wo.After)
	}
	defer watcher.Stop()
	defer c.res.api.Observe.WatchStarted(c.res.gvk())()
	return s.run(ctx, watcher)
}

// watchTime returns how long a watch lasts: timeoutSeconds, else a random time, so
// that clients do not reconnect all at once.
func (a *API) watchTime(o listOptions) (time.Duration, error) {
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		return time.Duration(*o.TimeoutSeconds) * time.Second, nil
	}
	var random [8]byte
	if _, err := io.ReadFull(a.Random, random[:]); err != nil {
		return 0, fmt.Errorf("draw a watch's time: %w", err)
	}
	return minWatch + time.Duration(binary.LittleEndian.Uint64(random[:])%uint64(minWatch)), nil
}

// watchOptions returns where the watch begins.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch
func (c *call) watchOptions(o listOptions) (watchcache.WatchOptions, error) {
	wo := watchcache.WatchOptions{
		Prefix:    c.res.scope(c.info.Namespace),
		Labels:    o.LabelSelector,
		Fields:    o.FieldSelector,
		Bookmarks: o.AllowWatchBookmarks,
	}
	rev, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return wo, err
	}
	wo.After = rev
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents:
		wo.Initial, wo.Fresh = true, o.ResourceVersion == ""
	case o.SendInitialEvents != nil && rev == 0:
		wo.After = -1
	case rev == 0: // legacy watch: initial events without a closing bookmark
		wo.Initial, wo.Fresh = true, o.ResourceVersion == ""
	}
	return wo, nil
}

// stream writes one watch to its client. One goroutine uses it.
type stream struct {
	*call
	f         wire.Format
	initEnd   bool // the client requested a bookmark after the initial events
	bookmarks bool
	begun     bool
	out       *http.ResponseController
	columns   bool   // the column definitions have been sent
	turn      func() // releases the turn to send initial events
	joined    joined // encoded events to be written at once, if several are ready

	selected *listOptions // what the client sees of the converted objects; nil: nothing is converted
}

func (c *call) newStream(f wire.Format, o listOptions) *stream {
	return &stream{
		call: c, f: f, bookmarks: o.AllowWatchBookmarks,
		initEnd: o.SendInitialEvents != nil && *o.SendInitialEvents,
		out:     http.NewResponseController(c.w),
	}
}

// begin sends the response header, once, without waiting for the first event, which
// may take long.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	media := s.f.Media
	if media != scheme.JSON {
		media += ";stream=watch"
	}
	s.w.Header().Set("Content-Type", media)
	s.w.WriteHeader(http.StatusOK)
	s.out.Flush()
}

// refuse ends a watch that could not begin. Clients expect the reason as an ERROR
// event, not as the status of the response. It always returns nil.
func (s *stream) refuse(err error, after int64) error {
	s.begin()
	s.writeError(watchError(err, after))
	return nil
}

func watchError(err error, after int64) error {
	if errors.Is(err, storage.ErrCompacted) {
		return apierrors.NewResourceExpired("too old resource version: " + strconv.FormatInt(after, 10))
	}
	return err
}

// run writes events until the watch ends: by timeout, by the client, by shutdown of
// the server, or because the cache dropped it as too slow.
func (s *stream) run(ctx context.Context, watcher *watchcache.Watcher) error {
	s.begin()
	last := int64(0)
	for {
		events, err := watcher.Next(ctx)
		if err != nil {
			if errors.Is(err, storage.ErrCompacted) {
				s.writeError(watchError(err, last))
			}
			return nil // without an error event, the client resumes at its last revision
		}
		if events, err = s.seen(ctx, events); err != nil {
			s.writeError(err)
			return nil
		}
		if err := s.writeAll(events); err != nil {
			s.res.api.Log.Debug("watch ends", "path", s.r.URL.Path, "err", err)
			return nil
		}
		if len(events) > 0 {
			last = events[len(events)-1].Revision
		}
	}
}

// writeAll sends the events that are ready, and flushes them.
func (s *stream) writeAll(events []watchcache.WatchEvent) error {
	if len(events) > 1 {
		buffer := joinBuffers.Get().(*[]byte)
		s.joined = (*buffer)[:0]
		defer func() {
			*buffer, s.joined = s.joined, nil
			joinBuffers.Put(buffer)
		}()
	}
	for i := range events {
		if err := s.write(&events[i]); err != nil {
			return err
		}
		if events[i].InitialEnd {
			s.turn()
			s.turn = func() {}
		}
	}
	if err := s.writeJoined(); err != nil {
		return err
	}
	return s.out.Flush()
}

// joinSize bounds the bytes of small events that are written at once. A write of its
// own for each would cost more than the event: three switches of goroutines, a TLS
// record and a system call.
const joinSize = 16 << 10

var joinBuffers = sync.Pool{New: func() any {
	buffer := make([]byte, 0, joinSize)
	return &buffer
}}

// writeJoined writes the joined events.
func (s *stream) writeJoined() error {
	if len(s.joined) == 0 {
		return nil
	}
	_, err := s.w.Write(s.joined)
	s.joined = s.joined[:0]
	return err
}

// write sends one event. It skips bookmarks that the client did not request.
func (s *stream) write(e *watchcache.WatchEvent) error {
	if e.Entry == nil {
		if !s.bookmarks || e.InitialEnd && !s.initEnd {
			return nil
		}
		return s.send(s.bookmark(e))
	}
	obj := s.res.show(e.Entry)
	if s.f.As != nil && s.f.As.Kind == wire.Table {
		return s.send(s.tableFrame(e.Type, obj))
	}
	if e.Alone() && s.f.As == nil && s.f.Media == scheme.JSON {
		return s.sendAlone(e.Type, obj)
	}
	var failed error
	data := e.Frame(s.frameKey(), func() []byte {
		frame, err := s.objectFrame(e.Type, obj)
		failed = err
		return frame
	})
	if data == nil && failed == nil { // another watcher failed to encode the shared frame
		failed = errors.New("the event cannot be encoded")
	}
	return s.send(data, failed)
}

// frameKey identifies the encoding of the stream among the encodings of an event
// that watchers share.
func (s *stream) frameKey() string {
	switch {
	case s.f.As != nil:
		return s.f.Media + ";as=" + s.f.As.Version + "." + s.f.As.Kind
	case s.res.served.GroupVersionKind != s.res.resource.gvk(), s.selected != nil:
		return s.f.Media + ";" + s.res.gvk().GroupVersion().String()
	}
	return s.f.Media
}

// sendAlone sends an event that no other watch shares, such as an initial event,
// without copying the object: if the client reads slowly, only the cached bytes are
// kept in memory.
func (s *stream) sendAlone(event watch.EventType, obj shown) error {
	bare, err := obj.JSON()
	if err != nil {
		return err
	}
	head := appendJSONEventHead(make([]byte, 0, 128), event, s.res.gvk(), bare)
	size := len(head) + bare.Len() - 1 + len(jsonEventTail)
	s.res.api.Observe.WatchEvent(s.res.gvk(), size)
	w, err := s.writer(size)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := bare.Write(w, 1); err != nil {
		return err
	}
	_, err = io.WriteString(w, jsonEventTail)
	return err
}

func (s *stream) send(frame []byte, err error) error {
	if err != nil {
		return err
	}
	s.res.api.Observe.WatchEvent(s.res.gvk(), len(frame))
	w, err := s.writer(len(frame))
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

// writer returns where to write size bytes: to the events that are joined, or to the connection if they
// are too many for that.
func (s *stream) writer(size int) (io.Writer, error) {
	if len(s.joined)+size > cap(s.joined) {
		if err := s.writeJoined(); err != nil {
			return nil, err
		}
	}
	if size > cap(s.joined) {
		return s.w, nil
	}
	return &s.joined, nil
}

// joined are encoded events that are written at once.
type joined []byte

func (j *joined) Write(p []byte) (int, error) {
	*j = append(*j, p...)
	return len(p), nil
}

func (j *joined) WriteString(p string) (int, error) {
	*j = append(*j, p...)
	return len(p), nil
}

// bookmark encodes a BOOKMARK event with the revision that the watch has reached.
func (s *stream) bookmark(e *watchcache.WatchEvent) ([]byte, error) {
	obj := s.res.empty()
	obj.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
	if e.InitialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if s.f.As != nil && s.f.As.Kind == wire.Table {
		return s.tableFrame(watch.Bookmark, &stored{obj: obj})
	}
	return s.objectFrame(watch.Bookmark, &stored{obj: obj})
}

// writeError sends an ERROR event with a Status.
func (s *stream) writeError(err error) {
	status := wire.StatusOf(err)
	frame, err := eventFrame(s.f.Media, watch.Error, statusGVK, wire.Bare(&status))
	if err == nil {
		s.send(frame, nil)
		s.out.Flush()
	}
}

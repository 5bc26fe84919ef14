package endpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
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

// A watch that does not say how long lasts at least this long, at most twice.
const minWatch = 30 * time.Minute

// watch streams the changes of a namespace, or of all.
func (c *call) watch() error {
	f, err := wire.Negotiate(c.r, wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadata, wire.PartialObjectMetadataList}, Stream: true})
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
	if wo.Initial {
		s.begin()
		req := request.From(c.ctx)
		if s.turn, err = req.Turns.Acquire(ctx, req.Flow, 1); err != nil {
			return nil // the watch has ended before its turn
		}
		defer func() { s.turn() }()
	}
	watcher, err := c.res.cache.Watch(ctx, wo)
	if err != nil {
		if errors.Is(err, storage.ErrFuture) {
			err = c.res.tooLargeVersion(c.ctx, wo.After)
		}
		return s.refuse(err, wo.After)
	}
	defer watcher.Stop()
	defer c.res.api.Observe.WatchStarted(c.res.gvk())()
	return s.run(ctx, watcher)
}

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

// watchOptions says where the watch begins.
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
	case rev == 0: // the old way: what is there comes first, without a mark behind it
		wo.Initial, wo.Fresh = true, o.ResourceVersion == ""
	}
	return wo, nil
}

// stream writes one watch to its client.
type stream struct {
	*call
	f         wire.Format
	initEnd   bool // the client wants to know where the initial events end
	bookmarks bool
	begun     bool
	out       *http.ResponseController
	columns   bool   // the table's head has been sent
	turn      func() // gives up the turn to send initial events
}

func (c *call) newStream(f wire.Format, o listOptions) *stream {
	return &stream{
		call: c, f: f, bookmarks: o.AllowWatchBookmarks,
		initEnd: o.SendInitialEvents != nil && *o.SendInitialEvents,
		out:     http.NewResponseController(c.w),
	}
}

// begin sends the response's head, at once: the client may have long to wait
// for the first event.
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

// refuse ends a watch that could not begin. Clients expect the reason as an
// event, not as the answer's status.
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

// run writes events until the watch ends: by its time, by the client, by the
// server's shutdown, or because the cache cut it.
func (s *stream) run(ctx context.Context, watcher *watchcache.Watcher) error {
	s.begin()
	last := int64(0)
	for {
		events, err := watcher.Next(ctx)
		if err != nil {
			if errors.Is(err, storage.ErrCompacted) {
				s.writeError(watchError(err, last))
			}
			return nil // an end without an error event: the client resumes where it is
		}
		for i := range events {
			last = events[i].Revision
			if events[i].InitialEnd {
				s.turn()
				s.turn = func() {}
			}
			if err := s.write(&events[i]); err != nil {
				s.res.api.Log.Debug("watch ends", "path", s.r.URL.Path, "err", err)
				return nil
			}
		}
		if err := s.out.Flush(); err != nil {
			return nil
		}
	}
}

// write sends one event.
func (s *stream) write(e *watchcache.WatchEvent) error {
	if e.Entry == nil {
		if !s.bookmarks || e.InitialEnd && !s.initEnd {
			return nil
		}
		return s.send(s.bookmark(e))
	}
	if s.f.As != nil && s.f.As.Kind == wire.Table {
		return s.send(s.tableFrame(e.Type, row{e.Entry.Object, e.Entry}))
	}
	if e.Alone() && s.f.As == nil && s.f.Media == scheme.JSON {
		return s.sendAlone(e)
	}
	var failed error
	data := e.Frame(s.frameKey(), func() []byte {
		frame, err := s.objectFrame(e.Type, e.Entry.Object, e.Entry)
		failed = err
		return frame
	})
	if data == nil && failed == nil { // another watcher could not encode it
		failed = errors.New("the event cannot be encoded")
	}
	return s.send(data, failed)
}

// frameKey tells apart the forms a watched object is sent in.
func (s *stream) frameKey() string {
	if s.f.As != nil {
		return s.f.Media + ";as=" + s.f.As.Version + "." + s.f.As.Kind
	}
	return s.f.Media
}

// sendAlone sends an event that no other watch sends, such as an initial one,
// without a copy of the object: only the cached bytes are kept while the client
// does not read.
func (s *stream) sendAlone(e *watchcache.WatchEvent) error {
	bare, err := e.Entry.JSON()
	if err != nil {
		return err
	}
	head := appendJSONEventHead(make([]byte, 0, 128), e.Type, s.res.gvk(), bare)
	s.res.api.Observe.WatchEvent(s.res.gvk(), len(head)+len(bare)-1+len(jsonEventTail))
	for _, part := range [][]byte{head, bare[1:], []byte(jsonEventTail)} {
		if _, err := s.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) send(frame []byte, err error) error {
	if err != nil {
		return err
	}
	s.res.api.Observe.WatchEvent(s.res.gvk(), len(frame))
	_, err = s.w.Write(frame)
	return err
}

// bookmark is an event that only says how far the watch has come.
func (s *stream) bookmark(e *watchcache.WatchEvent) ([]byte, error) {
	obj := s.res.New()
	obj.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
	if e.InitialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	enc, same := wire.Bare(obj), func() scheme.Object { return obj }
	if s.f.As != nil && s.f.As.Kind == wire.Table {
		return s.tableFrame(watch.Bookmark, row{same, enc})
	}
	return s.objectFrame(watch.Bookmark, same, enc)
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

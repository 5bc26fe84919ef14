package etcd

import (
	"context"
	"errors"
	"fmt"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"podium/pkg/storage"
)

var errEnded = errors.New("the watch has ended")

// batch is the number of events from which on Next does not add further responses.
const batch = 1000

// watch wraps an etcd watch. The etcd client joins the fragments of a response, so
// that no revision is split over two calls of Next.
type watch struct {
	store  *Store
	what   string
	ctx    context.Context // of the stream: progress requests must use the same one
	cancel context.CancelFunc
	events clientv3.WatchChan
}

// Watch reports the writes under a prefix after a revision. ctx bounds only the
// beginning of the watch.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watch, error) {
	what := fmt.Sprintf("watch %s after revision %d", prefix, after)
	stream, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !s.singleMember {
		stream = clientv3.WithRequireLeader(stream) // otherwise a member without a leader would send nothing
	}
	begin, began := bound(ctx)
	defer began()
	release := context.AfterFunc(begin, cancel)
	events := s.client.Watch(stream, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFragment())
	if !release() {
		return nil, explain(what, begin.Err())
	}
	return &watch{store: s, what: what, ctx: stream, cancel: cancel, events: events}, nil
}

// Next blocks until there are events, the watch ends, or ctx ends.
func (w *watch) Next(ctx context.Context) ([]storage.Event, error) {
	for {
		select {
		case resp, ok := <-w.events:
			events, err := w.read(nil, resp, ok)
			if err != nil {
				return nil, err
			}
			if events = w.more(events); len(events) > 0 {
				w.store.note(events[len(events)-1].Revision)
				return events, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// more appends the events of responses that are ready. It puts an error back into
// the channel for the next call of Next.
func (w *watch) more(events []storage.Event) []storage.Event {
	for len(events) < batch {
		select {
		case resp, ok := <-w.events:
			if !ok || resp.Err() != nil {
				w.events = closedWith(resp)
				return events
			}
			events, _ = w.read(events, resp, ok)
		default:
			return events
		}
	}
	return events
}

// closedWith returns a closed channel that holds resp if that is an error.
func closedWith(resp clientv3.WatchResponse) clientv3.WatchChan {
	ch := make(chan clientv3.WatchResponse, 1)
	if resp.Err() != nil {
		ch <- resp
	}
	close(ch)
	return ch
}

// read appends the events of one response to events. ok is false if the channel is
// closed.
func (w *watch) read(events []storage.Event, resp clientv3.WatchResponse, ok bool) ([]storage.Event, error) {
	if !ok {
		return nil, fmt.Errorf("%s: %w", w.what, errEnded)
	}
	if err := resp.Err(); err != nil {
		return nil, explain(w.what, err)
	}
	if resp.IsProgressNotify() {
		if w.store.marks {
			events = append(events, storage.Event{KV: storage.KV{Revision: resp.Header.Revision}})
		}
		return events, nil
	}
	if events == nil {
		events = make([]storage.Event, 0, len(resp.Events))
	}
	for _, ev := range resp.Events {
		kv := storage.KV{Key: string(ev.Kv.Key), Revision: ev.Kv.ModRevision}
		if ev.Type == mvccpb.PUT {
			kv.Value = ev.Kv.Value
		}
		events = append(events, storage.Event{KV: kv})
	}
	return events, nil
}

// Mark requests a progress notification from etcd.
func (w *watch) Mark(ctx context.Context) error {
	if !w.store.marks {
		return fmt.Errorf("this version of etcd does not support watch progress requests: %w", errors.ErrUnsupported)
	}
	begin, cancel := bound(ctx)
	defer cancel()
	stream, stop := context.WithCancel(w.ctx)
	defer stop()
	defer context.AfterFunc(begin, stop)()
	return explain("request watch progress", w.store.client.RequestProgress(stream))
}

// Stop ends the watch. It may be called more than once.
func (w *watch) Stop() { w.cancel() }

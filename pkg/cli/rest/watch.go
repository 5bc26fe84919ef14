package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// Event is an event of a watch. Object is in the form that the watch requested.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Watch calls each for every event after the resource version in query. It
// blocks until each returns an error, ctx ends (both are returned) or the
// server ends the watch (nil). accept is the requested form; "" means plain
// objects.
func (c *Cluster) Watch(ctx context.Context, path string, query url.Values, accept string, each func(Event) error) error {
	q := url.Values{"watch": {"true"}}
	for key, v := range query {
		q[key] = v
	}
	h := http.Header{}
	if accept != "" {
		h.Set("Accept", accept)
	}
	body, err := c.Stream(ctx, client.Request{Path: path, Query: q, Header: h})
	if err != nil {
		return err
	}
	defer body.Close()
	d := json.NewDecoder(body)
	for {
		var e Event
		if err := d.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return fmt.Errorf("watch %s: %w", path, err)
		}
		if e.Type == "ERROR" {
			status := metav1.Status{}
			if err := json.Unmarshal(e.Object, &status); err != nil {
				return fmt.Errorf("watch %s: %w", path, err)
			}
			return &apierrors.StatusError{ErrStatus: status}
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// Only returns the query that selects one object by name in a list or watch.
func Only(name string) url.Values { return url.Values{"fieldSelector": {"metadata.name=" + name}} }

// ErrStop, returned by the callback of Follow, ends Follow without an error.
var ErrStop = errors.New("stop")

// Follow calls each with the present state of an object, or nil while it does
// not exist, and again after every change. It blocks until each returns an
// error (nil for ErrStop) or ctx ends, and continues after a watch ends.
func (c *Cluster) Follow(ctx context.Context, k *Kind, namespace, name string, each func(*Object) error) error {
	for {
		err := c.followOnce(ctx, k, namespace, name, each)
		switch {
		case errors.Is(err, ErrStop):
			return nil
		case err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return err
		}
	}
}

func (c *Cluster) followOnce(ctx context.Context, k *Kind, namespace, name string, each func(*Object) error) error {
	list, err := c.List(ctx, k, namespace, Only(name))
	if err != nil {
		return err
	}
	var now *Object
	if len(list.Items) > 0 {
		now = &list.Items[0]
	}
	if err := each(now); err != nil {
		return err
	}
	q := Only(name)
	q.Set("resourceVersion", list.GetResourceVersion())
	return c.Watch(ctx, k.Path(namespace, ""), q, "", func(e Event) error {
		obj := &Object{}
		if err := obj.UnmarshalJSON(e.Object); err != nil {
			return err
		}
		if e.Type == "DELETED" {
			return each(nil)
		}
		return each(obj)
	})
}

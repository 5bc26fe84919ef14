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

// Event is one change that a watch reports. Object is in the form the watch
// asked for.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Watch calls each for every event from the revision on, until each or ctx ends
// it or the server has nothing more to say, which gives nil. accept is empty
// for plain objects.
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

// Only selects one object by name in a list or watch.
func Only(name string) url.Values { return url.Values{"fieldSelector": {"metadata.name=" + name}} }

// ErrStop ends a Watch or Follow from inside, without an error.
var ErrStop = errors.New("stop")

// Follow shows an object from now on: each is called with its present state,
// or nil while it does not exist, and again after each change, until each
// returns an error; ErrStop gives nil. It goes on over broken watches.
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

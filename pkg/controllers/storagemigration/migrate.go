package storagemigration

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/metadata"
	"podium/pkg/controller/loop"
)

const pageSize = 500

// progress is how far a migration has come.
type progress struct {
	migration types.UID
	left      []*metadata.Object // of the page that was read last
	next      string             // the token of the next page
	last      bool               // there is no next page
}

func (r *reconciler) progressOf(key loop.Key, m *migration) *progress {
	if p := r.at[key]; p != nil && p.migration == m.UID {
		return p
	}
	p := &progress{migration: m.UID}
	r.at[key] = p
	return p
}

// run writes the objects of a kind that are left again. problem says why an object cannot
// be written; after an error, the next call continues with the same object.
func (p *progress) run(ctx context.Context, kind metadata.Kind) (problem string, err error) {
	for {
		for ; len(p.left) > 0; p.left = p.left[1:] {
			if problem, err := rewrite(ctx, kind, p.left[0]); problem != "" || err != nil {
				return problem, err
			}
		}
		if p.last {
			return "", nil
		}
		if err := p.read(ctx, kind); err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
	}
}

// read reads the next page.
func (p *progress) read(ctx context.Context, kind metadata.Kind) error {
	list, err := kind.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: p.next})
	if next, expired := expiredAt(err); expired && next != p.next {
		p.next = next
		list, err = kind.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: p.next})
	}
	if err != nil {
		return err
	}
	p.left, p.next, p.last = list.Items, list.Continue, list.Continue == ""
	return nil
}

// expiredAt returns the token that the server offers instead of an expired one. What it
// leads to is of a later revision: objects that are new since then need no migration.
// Without an offer, the list begins again.
func expiredAt(err error) (next string, expired bool) {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return "", false
	}
	return status.Status().Continue, true
}

// rewrite patches an object without changing it: the server writes it if it is not stored
// as it would be now. An object that is gone, or that another client has written since it
// was listed, is migrated.
func rewrite(ctx context.Context, kind metadata.Kind, obj *metadata.Object) (problem string, err error) {
	_, err = kind.Patch(ctx, obj.Namespace, obj.Name, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": obj.UID, "resourceVersion": obj.ResourceVersion},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case temporary(err):
		return "", fmt.Errorf("patch %s: %w", nameOf(obj), err)
	}
	return fmt.Sprintf("patch %s: %v", nameOf(obj), err), nil
}

// temporary reports whether a request may succeed when it is sent again: no answer came,
// or the answer blames the server.
func temporary(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code == http.StatusUnauthorized
}

func nameOf(obj *metadata.Object) string {
	if obj.Namespace == "" {
		return obj.Name
	}
	return obj.Namespace + "/" + obj.Name
}

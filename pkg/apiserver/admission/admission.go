package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Operation is what is about to be done.
type Operation string

// The operations. Connect is a stream to a pod or a node.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describe one write.
type Attributes struct {
	Operation   Operation
	Kind        *registry.Kind
	Subresource string
	Namespace   string
	Name        string
	Object      scheme.Object  // what will be stored; nil on delete
	Old         scheme.Object  // what is stored; nil on create. Never to be modified
	Body        runtime.Object // what an action (binding, eviction, token) was asked with; nil elsewhere
	DryRun      bool
	User        *request.User // nil: the server itself
}

// Func is one rule. Its error goes to the client: an *apierrors.StatusError,
// made by Forbidden for a plain refusal.
type Func func(ctx context.Context, a *Attributes) error

// Chain is what every write goes through, in order: Mutate may change
// a.Object, then the kind's own preparation and validation run, then Validate.
type Chain struct {
	Mutate   []Func
	Validate []Func
}

// Run calls each rule until one refuses.
func Run(ctx context.Context, rules []Func, a *Attributes) error {
	for _, f := range rules {
		if err := f(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Forbidden is the refusal of a write, with its reason.
func Forbidden(a *Attributes, format string, args ...any) *apierrors.StatusError {
	name := a.Name
	if name == "" && a.Object != nil {
		if name = a.Object.GetName(); name == "" {
			name = a.Object.GetGenerateName()
		}
	}
	return apierrors.NewForbidden(a.Kind.GVR().GroupResource(), name, fmt.Errorf(format, args...))
}

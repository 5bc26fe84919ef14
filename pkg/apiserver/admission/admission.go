package admission

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Operation is what a request does to an object.
type Operation string

// The operations, as webhooks name them. Connect opens a stream to a pod, a
// node or a Service.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describe one request to the plugins. Plugins may modify Object in
// Mutate, and nothing else. A name that is generated is not known yet in Mutate: Name is
// empty then.
type Attributes struct {
	Operation   Operation
	Resource    schema.GroupVersionResource
	Subresource string                  // empty: the object itself
	Kind        schema.GroupVersionKind // of Object, or of Body
	Namespace   string                  // empty: a cluster-scoped object
	Name        string
	Object      scheme.Object  // the object to store; nil on delete, connect and actions
	Old         scheme.Object  // the stored object; nil on create. Plugins must not modify it
	Body        runtime.Object // the body of an action (binding, eviction, token), the options of a connection; nil elsewhere
	Options     runtime.Object // the request's CreateOptions, UpdateOptions, PatchOptions or DeleteOptions; nil for the server's own writes, and where there are none
	DryRun      bool
	User        *request.User // nil: a write by the server itself

	// Forms are the forms in which clients see the object, that of the request
	// first; nil: Resource and Kind, unconverted.
	Forms []Form

	// Round is 0 in the first run of the mutating plugins. Plugins that can change
	// what others have seen use Rounds, which makes the chain run them once more.
	Round  int
	again  bool
	rounds map[string]*Rounds // by the plugin
}

// Func is one function of a plugin. Its error goes to the client and must be or
// wrap an *apierrors.StatusError, which Forbidden returns for a refusal. It
// must be safe for concurrent use, and may be called several times for one
// request.
type Func func(ctx context.Context, a *Attributes) error

// Plugin is an admission plugin. The chain calls its functions only for the
// operations and the resource that it names.
type Plugin struct {
	Name       string      // upstream's name, which flags and configuration files use
	Operations []Operation // nil: all operations

	// Resource and Subresource select one resource, or one subresource of it.
	// The zero Resource selects all resources and subresources.
	Resource    schema.GroupResource
	Subresource string

	// Mutate may change Object, before the kind's own preparation and
	// validation; Validate sees the result and must not change it. Either may
	// be nil.
	Mutate, Validate Func
}

// handles reports whether the plugin is called for a request.
func (p *Plugin) handles(a *Attributes) bool {
	if p.Operations != nil && !slices.Contains(p.Operations, a.Operation) {
		return false
	}
	return p.Resource.Empty() || p.Resource.Resource == a.Resource.Resource && p.Resource.Group == a.Resource.Group && p.Subresource == a.Subresource
}

// Chain is the enabled plugins, in the order in which they run. It is safe for
// concurrent use.
type Chain []Plugin

// Admit runs a request through the chain: Mutate, then prepare, which prepares and
// validates the object by the rules of its kind (nil: nothing), then Validate. It stops
// at the first error and returns it.
func (c Chain) Admit(ctx context.Context, a *Attributes, prepare func() error) error {
	if err := c.Mutate(ctx, a); err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	return c.Validate(ctx, a)
}

// Mutate calls each plugin's Mutate, twice if that changes what others have seen, up to
// the first error.
func (c Chain) Mutate(ctx context.Context, a *Attributes) error {
	mutate := func(p *Plugin) Func { return p.Mutate }
	if err := c.run(ctx, a, mutate); err != nil || !a.again {
		return err
	}
	a.Round++
	return c.run(ctx, a, mutate)
}

// Validate calls each plugin's Validate, up to the first error.
func (c Chain) Validate(ctx context.Context, a *Attributes) error {
	return c.run(ctx, a, func(p *Plugin) Func { return p.Validate })
}

// run calls one phase of the plugins that handle the request, up to the first
// error.
func (c Chain) run(ctx context.Context, a *Attributes, phase func(*Plugin) Func) error {
	for i := range c {
		if f := phase(&c[i]); f != nil && c[i].handles(a) {
			if err := f(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Forbidden returns the 403 error of a request. format and args give the
// reason.
func Forbidden(a *Attributes, format string, args ...any) *apierrors.StatusError {
	name := a.Name
	if name == "" && a.Object != nil {
		if name = a.Object.GetName(); name == "" {
			name = a.Object.GetGenerateName()
		}
	}
	return apierrors.NewForbidden(a.Resource.GroupResource(), name, fmt.Errorf(format, args...))
}

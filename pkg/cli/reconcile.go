package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/cli/rest"
	"podium/pkg/roles"
)

// reconcileOptions are the flags of auth reconcile.
type reconcileOptions struct {
	change
	roles.Options
}

func newReconcile(f *Factory, run func(context.Context, *reconcileOptions) error) *cobra.Command {
	o := &reconcileOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:   "reconcile -f FILE",
		Short: "Add to roles and bindings what those of files have more; other objects of the files are left out",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.Files) == 0 {
				return errors.New("must specify one of -f")
			}
			return run(cmd.Context(), o)
		},
	}
	o.fileFlags(cmd, "roles and bindings")
	dryRunFlag(cmd, &o.DryRun)
	o.formatFlag(cmd)
	cmd.Flags().BoolVar(&o.RemoveExtraRules, "remove-extra-permissions", false, "take away the rules that the files do not have")
	cmd.Flags().BoolVar(&o.RemoveExtraSubjects, "remove-extra-subjects", false, "take away the subjects that the files do not have")
	return cmd
}

func runReconcile(ctx context.Context, o *reconcileOptions) error {
	return o.each(ctx, false, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if t.Kind.Group != rbacv1.GroupName {
			fmt.Fprintf(o.Err, "Warning: skipped %s: only roles and bindings are reconciled\n", t)
			return nil, "", nil
		}
		obj, err := o.reconcile(ctx, c, t)
		return obj, "reconciled", err
	})
}

// reconcile makes one object what its file wants and returns it.
func (o *reconcileOptions) reconcile(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, error) {
	have, err := c.Get(ctx, t.Kind, t.Namespace, t.Name)
	if apierrors.IsNotFound(err) {
		return o.write(t.Object, func() (*rest.Object, error) {
			return c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
		})
	}
	if err != nil || roles.Protected(have) {
		return have, err
	}
	next, changed, err := o.merge(have, t.Object)
	switch {
	case errors.Is(err, errOtherRole):
		return o.write(t.Object, func() (*rest.Object, error) { return o.replace(ctx, c, t) })
	case err != nil || !changed:
		return have, err
	}
	return o.write(next, func() (*rest.Object, error) { return c.Update(ctx, t.Kind, t.Namespace, next, o.query()) })
}

// write does what it is told, unless nothing is to be done.
func (o *reconcileOptions) write(shown *rest.Object, do func() (*rest.Object, error)) (*rest.Object, error) {
	if o.DryRun == "client" {
		return shown, nil
	}
	return do()
}

// replace makes a binding anew: what it refers to cannot be changed.
func (o *reconcileOptions) replace(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, error) {
	if o.DryRun == "server" {
		return t.Object, nil
	}
	if _, err := c.Delete(ctx, t.Kind, t.Namespace, t.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
}

var errOtherRole = errors.New("it refers to another role")

// merge is have with what want has more.
func (o *reconcileOptions) merge(have, want *rest.Object) (next *rest.Object, changed bool, err error) {
	switch gvk := have.GroupVersionKind(); gvk.Kind {
	case "Role":
		return mergeTyped(have, want, gvk, func(have, want *rbacv1.Role) (bool, error) { return roles.Role(have, want, o.Options), nil })
	case "ClusterRole":
		return mergeTyped(have, want, gvk, func(have, want *rbacv1.ClusterRole) (bool, error) {
			return roles.ClusterRole(have, want, o.Options), nil
		})
	case "RoleBinding":
		return mergeTyped(have, want, gvk, func(have, want *rbacv1.RoleBinding) (bool, error) {
			return o.binding(&have.ObjectMeta, &want.ObjectMeta, have.RoleRef, want.RoleRef, &have.Subjects, want.Subjects)
		})
	case "ClusterRoleBinding":
		return mergeTyped(have, want, gvk, func(have, want *rbacv1.ClusterRoleBinding) (bool, error) {
			return o.binding(&have.ObjectMeta, &want.ObjectMeta, have.RoleRef, want.RoleRef, &have.Subjects, want.Subjects)
		})
	default:
		return nil, false, fmt.Errorf("%s cannot be reconciled", gvk.Kind)
	}
}

func (o *reconcileOptions) binding(have, want *metav1.ObjectMeta, ref, wanted rbacv1.RoleRef, subjects *[]rbacv1.Subject, more []rbacv1.Subject) (bool, error) {
	if wanted.APIGroup == "" {
		wanted.APIGroup = rbacv1.GroupName
	}
	if ref != wanted {
		return false, errOtherRole
	}
	for i := range more { // as the server would fill it in
		if s := &more[i]; s.Kind != rbacv1.ServiceAccountKind && s.APIGroup == "" {
			s.APIGroup = rbacv1.GroupName
		}
	}
	changed := roles.Metadata(have, want)
	return roles.Subjects(subjects, more, o.Options) || changed, nil
}

// mergeTyped does it with the Go types.
func mergeTyped[T any, P interface {
	*T
	runtime.Object
}](have, want *rest.Object, gvk schema.GroupVersionKind, f func(have, want P) (bool, error)) (*rest.Object, bool, error) {
	a, b := P(new(T)), P(new(T))
	for _, pair := range []struct {
		from *rest.Object
		to   P
	}{{have, a}, {want, b}} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pair.from.Object, pair.to); err != nil {
			return nil, false, err
		}
	}
	changed, err := f(a, b)
	if err != nil {
		return nil, false, err
	}
	next, err := toObject(a, gvk)
	return next, changed, err
}

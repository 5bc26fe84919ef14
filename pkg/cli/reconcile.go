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
		Short: "Reconcile rules for RBAC role, role binding, cluster role and cluster role binding objects",
		Args:  noArgs,
		RunE:  onFiles(&o.selection, o, run),
	}
	o.writeFlags(cmd, "roles and bindings")
	cmd.Flags().BoolVar(&o.RemoveExtraRules, "remove-extra-permissions", false, "remove extra permissions that the files do not have")
	cmd.Flags().BoolVar(&o.RemoveExtraSubjects, "remove-extra-subjects", false, "remove extra subjects that the files do not have")
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

// reconcile creates or updates one object so that it contains what its file
// has, and returns it.
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

// write calls do, or returns shown with --dry-run=client.
func (o *reconcileOptions) write(shown *rest.Object, do func() (*rest.Object, error)) (*rest.Object, error) {
	if o.DryRun == "client" {
		return shown, nil
	}
	return do()
}

// replace deletes and creates a binding: its role reference is immutable.
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

// merge returns have with the additions of want.
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

// binding adds the metadata and subjects of a wanted binding, and reports
// whether that changed anything. It returns errOtherRole if the role differs.
func (o *reconcileOptions) binding(have, want *metav1.ObjectMeta, ref, wanted rbacv1.RoleRef, subjects *[]rbacv1.Subject, more []rbacv1.Subject) (bool, error) {
	if wanted.APIGroup == "" {
		wanted.APIGroup = rbacv1.GroupName
	}
	if ref != wanted {
		return false, errOtherRole
	}
	for i := range more { // the server's default
		if s := &more[i]; s.Kind != rbacv1.ServiceAccountKind && s.APIGroup == "" {
			s.APIGroup = rbacv1.GroupName
		}
	}
	changed := roles.Metadata(have, want)
	return roles.Subjects(subjects, more, o.Options) || changed, nil
}

// mergeTyped converts both objects to their Go type, calls f, and converts have
// back.
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

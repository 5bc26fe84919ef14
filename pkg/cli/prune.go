package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/cli/rest"
)

// pruning are the flags of apply and diff that select the objects of earlier applies
// that the files no longer have.
type pruning struct {
	Prune     bool
	Allowlist []string // GROUP/VERSION/KIND; empty: defaultAllowlist
}

// defaultAllowlist are the kinds that --prune deletes without --prune-allowlist: those
// of kubectl.
var defaultAllowlist = []string{
	"core/v1/ConfigMap", "core/v1/Endpoints", "core/v1/PersistentVolumeClaim", "core/v1/Pod", "core/v1/ReplicationController",
	"core/v1/Secret", "core/v1/Service", "batch/v1/Job", "batch/v1/CronJob", "networking.k8s.io/v1/Ingress",
	"apps/v1/DaemonSet", "apps/v1/Deployment", "apps/v1/ReplicaSet", "apps/v1/StatefulSet",
	"core/v1/Namespace", "core/v1/PersistentVolume",
}

func (p *pruning) pruneFlags(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&p.Prune, "prune", false, usage)
	cmd.Flags().StringArrayVar(&p.Allowlist, "prune-allowlist", nil, "overwrite the default allowlist with <group/version/kind> for --prune; may be repeated")
}

// kinds returns the kinds in the allowlist.
func (p *pruning) kinds(ctx context.Context, c *rest.Cluster) ([]*rest.Kind, error) {
	list := p.Allowlist
	if len(list) == 0 {
		list = defaultAllowlist
	}
	var out []*rest.Kind
	for _, text := range list {
		parts := strings.Split(text, "/")
		if len(parts) != 3 {
			return nil, fmt.Errorf("invalid GroupVersionKind format: %s, please follow <group/version/kind>", text)
		}
		if parts[0] == "core" {
			parts[0] = ""
		}
		k, err := c.ByGVK(ctx, schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]})
		if err != nil {
			return nil, fmt.Errorf("--prune-allowlist: %w", err)
		}
		out = append(out, k)
	}
	return out, nil
}

// stale returns the objects that an apply has written, by kubectl or by this field
// manager, and that are not in files. It looks at the namespaces of files, at
// cluster-scoped objects, and only at objects that s selects by label.
func (p *pruning) stale(ctx context.Context, c *rest.Cluster, s *selection, manager string, files []target) ([]target, error) {
	kinds, err := p.kinds(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []target
	for _, k := range kinds {
		for _, namespace := range scopes(k, files) {
			list, err := c.List(ctx, k, namespace, s.query())
			if err != nil {
				return nil, fmt.Errorf("list %s to prune: %w", k.Plural(), err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				t := target{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName(), Object: o}
				if wasApplied(o, manager) && !slices.ContainsFunc(files, t.same) {
					out = append(out, t)
				}
			}
		}
	}
	return out, nil
}

// scopes returns the namespaces of files, or "" for a cluster-scoped kind.
func scopes(k *rest.Kind, files []target) []string {
	if !k.Namespaced {
		return []string{""}
	}
	var out []string
	for _, t := range files {
		if t.Kind.Namespaced && !slices.Contains(out, t.Namespace) {
			out = append(out, t.Namespace)
		}
	}
	return out
}

// same reports whether two targets are one object, in any version.
func (t target) same(other target) bool {
	return t.Kind.GroupKind() == other.Kind.GroupKind() && t.Namespace == other.Namespace && t.Name == other.Name
}

// wasApplied reports whether an object is of a client-side apply, or of a server-side
// apply by manager.
func wasApplied(o *rest.Object, manager string) bool {
	_, byClient := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	return byClient || appliedBy(o, manager) != nil
}

// appliedBy returns the fields that manager has applied to an object, nil if none.
func appliedBy(o *rest.Object, manager string) *metav1.FieldsV1 {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return entry.FieldsV1
		}
	}
	return nil
}

// prune deletes the objects that find returns.
func (o *applyOptions) prune(ctx context.Context, find func(context.Context, *rest.Cluster) ([]target, error)) error {
	removal := deleteOptions{Cascade: o.Cascade, GracePeriod: o.GracePeriod, DryRun: o.DryRun}
	opts, err := removal.options()
	if err != nil {
		return err
	}
	targets := func(ctx context.Context) ([]target, error) {
		c, err := o.Cluster()
		if err != nil {
			return nil, err
		}
		return find(ctx, c)
	}
	return o.eachOf(ctx, targets, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if o.DryRun != "client" {
			if _, err := c.Delete(ctx, t.Kind, t.Namespace, t.Name, opts); err != nil && !notFound(err) {
				return nil, "", err
			}
		}
		return t.Object, "pruned", nil
	})
}

package registry

import (
	"context"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/crd/definition"
	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// customResourceDefinitions returns the kind that defines other kinds. Package crd
// serves those.
func customResourceDefinitions(k *scheme.Kind, _ Config) *Kind {
	life := lifecycle[*apiextensionsv1.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionSpec, apiextensionsv1.CustomResourceDefinitionStatus]{
		parts: func(c *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinitionSpec, *apiextensionsv1.CustomResourceDefinitionStatus) {
			return &c.Spec, &c.Status
		},
	}
	return Of[*apiextensionsv1.CustomResourceDefinition]{
		Default: defaultCustomResourceDefinition,
		Prepare: func(ctx context.Context, b Backend, new, old *apiextensionsv1.CustomResourceDefinition) error {
			err := life.prepare(ctx, b, new, old)
			addStoredVersion(new)
			return err
		},
		Validate: definition.Validate,
		Warnings: definition.Warnings,
		Columns:  columns(metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}),
		Row: func(c *apiextensionsv1.CustomResourceDefinition, _ time.Time) []any {
			return []any{c.Name, c.CreationTimestamp.UTC().Format(time.RFC3339)}
		},
		BeforeDelete: terminateDefinition,
		Subresources: []*Subresource{life.status(k, nil, definition.ValidateStatus)},
	}.Kind(k)
}

func defaultCustomResourceDefinition(c *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&c.Spec)
	if hook := c.Spec.Conversion.Webhook; hook != nil && hook.ClientConfig != nil && hook.ClientConfig.Service != nil {
		apiextensionsv1.SetDefaults_ServiceReference(hook.ClientConfig.Service)
	}
	if len(c.Status.StoredVersions) == 0 {
		addStoredVersion(c)
	}
}

// addStoredVersion adds the storage version to the versions in which objects may be
// stored.
func addStoredVersion(c *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range c.Spec.Versions {
		if v.Storage && !slices.Contains(c.Status.StoredVersions, v.Name) {
			c.Status.StoredVersions = append(slices.Clip(c.Status.StoredVersions), v.Name)
			return
		}
	}
}

// terminateDefinition makes the first delete wait until the custom resources are
// deleted, which package crd does.
func terminateDefinition(c *apiextensionsv1.CustomResourceDefinition, _ *metav1.DeleteOptions, now time.Time) (keep bool, err error) {
	if c.DeletionTimestamp != nil {
		return false, nil
	}
	deleted := metav1.NewTime(now.Truncate(time.Second))
	c.DeletionTimestamp = &deleted
	if !apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer) {
		c.Finalizers = append(c.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	c.Status.Conditions = conditions.Set(c.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message:            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
		LastTransitionTime: deleted,
	})
	return true, nil
}

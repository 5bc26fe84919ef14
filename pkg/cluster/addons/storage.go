package addons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/deploy/manifests"
	"podium/pkg/client"
)

const (
	defaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"

	// classCreated is an annotation of the namespace kube-system: when the StorageClass
	// was created. From then on it belongs to the administrators, who may change or delete
	// it. The namespace outlives it, and is in every backup.
	classCreated = "podium.dev/local-path-class-created"
)

// CreateStorageClass creates the StorageClass local-path, once in the life of a cluster. It
// is the default class if the cluster is new and has no other: where claims exist, those
// without a class may count on volumes without one.
func CreateStorageClass(ctx context.Context, c *client.Client, newCluster bool) error {
	namespaces := client.For[*corev1.Namespace](c)
	system, err := namespaces.Get(ctx, metav1.NamespaceSystem)
	if err != nil {
		return fmt.Errorf("get namespace: %w", err)
	}
	if system.Annotations[classCreated] != "" {
		return nil
	}
	if err := createClass(ctx, c, newCluster); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{classCreated: time.Now().UTC().Format(time.RFC3339)},
	}})
	if err == nil {
		_, err = namespaces.Patch(ctx, metav1.NamespaceSystem, types.MergePatchType, patch)
	}
	if err != nil {
		return fmt.Errorf("annotate namespace: %w", err)
	}
	return nil
}

// createClass creates the class if it does not exist.
func createClass(ctx context.Context, c *client.Client, isDefault bool) error {
	objects, err := decode(c.Scheme(), manifests.LocalPath)
	if err != nil {
		return fmt.Errorf("read the manifest of local-path: %w", err)
	}
	class, ok := objects[0].(*storagev1.StorageClass)
	if !ok || len(objects) != 1 {
		return errors.New("read the manifest of local-path: it is not one StorageClass")
	}
	classes := client.For[*storagev1.StorageClass](c)
	others, err := classes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list storageclasses: %w", err)
	}
	for _, other := range others.Items {
		isDefault = isDefault && other.Annotations[defaultClass] != "true" && other.Annotations[betaDefaultClass] != "true"
	}
	if !isDefault {
		delete(class.Annotations, defaultClass)
	}
	if _, err = classes.Create(ctx, class); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create storageclass %s: %w", class.Name, err)
	}
	return nil
}

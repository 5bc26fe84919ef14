package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	garbage = "garbage" // the namespace of the owner and its dependents
	writers = 32        // which create dependents at once
)

// ownedObjects creates a ConfigMap and its dependents, b.dependents ConfigMaps.
func (b *bench) ownedObjects(ctx context.Context) (map[string]any, error) {
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: garbage}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	owner, err := b.client.CoreV1().ConfigMaps(garbage).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reference := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for n := next.Add(1); n <= int64(b.dependents) && ctx.Err() == nil; n = next.Add(1) {
				_, err := b.client.CoreV1().ConfigMaps(garbage).Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("dependent-%06d", n), OwnerReferences: reference},
					Data:       map[string]string{"of": "owner"},
				}, metav1.CreateOptions{})
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	return map[string]any{"dependents": b.dependents}, context.Cause(ctx)
}

// collect deletes the owner and waits until its dependents are gone.
func (b *bench) collect(ctx context.Context) (map[string]any, error) {
	if err := b.client.CoreV1().ConfigMaps(garbage).Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	began, told := time.Now(), time.Now()
	for {
		left, err := b.ownedLeft(ctx)
		if err != nil || left == 0 {
			took := time.Since(began).Seconds()
			return map[string]any{"dependents": b.dependents, "deleted_per_s": round(float64(b.dependents) / took)}, err
		}
		if time.Since(told) > 5*time.Second {
			log.Printf("of %d dependents, %d are left after %.1f s", b.dependents, left, time.Since(began).Seconds())
			told = time.Now()
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// ownedLeft counts the ConfigMaps in the namespace, but for the cluster's root certificate.
func (b *bench) ownedLeft(ctx context.Context) (int64, error) {
	list, err := b.client.CoreV1().ConfigMaps(garbage).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	count := int64(len(list.Items)) - 1
	if list.RemainingItemCount != nil {
		count += *list.RemainingItemCount
	}
	return count, nil
}

package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"slices"
	"testing"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func request(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func csrAPI(t *testing.T, ctx context.Context, namespace string) {
	resources, err := admin.Discovery().ServerResourcesForGroupVersion("certificates.k8s.io/v1")
	check(t, err)
	var served []string
	for _, r := range resources.APIResources {
		served = append(served, r.Name)
	}
	for _, want := range []string{"certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"} {
		if !slices.Contains(served, want) {
			t.Errorf("discovery lacks %s: %v", want, served)
		}
	}

	csrs, label := admin.CertificatesV1().CertificateSigningRequests(), metav1.ListOptions{LabelSelector: "of=" + namespace}
	create := func() *certificates.CertificateSigningRequest {
		made, err := csrs.Create(ctx, &certificates.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-", Labels: map[string]string{"of": namespace}},
			Spec: certificates.CertificateSigningRequestSpec{
				Request: request(t, "conformance"), SignerName: "example.com/conformance", Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
			},
		}, metav1.CreateOptions{})
		check(t, err)
		return made
	}
	first := create()
	if first.Spec.Username == "" || !slices.Contains(first.Spec.Groups, "system:authenticated") {
		t.Errorf("the requester is %q of %v", first.Spec.Username, first.Spec.Groups)
	}
	got, err := csrs.Get(ctx, first.Name, metav1.GetOptions{})
	check(t, err)
	if got.UID != first.UID {
		t.Error("get returned another object")
	}
	list, err := csrs.List(ctx, label)
	check(t, err)
	if len(list.Items) != 1 {
		t.Errorf("%d listed, want 1", len(list.Items))
	}
	watching, err := csrs.Watch(ctx, metav1.ListOptions{LabelSelector: label.LabelSelector, ResourceVersion: list.ResourceVersion})
	check(t, err)
	defer watching.Stop()

	patch := func(patch any, sub ...string) *certificates.CertificateSigningRequest {
		t.Helper()
		data, err := json.Marshal(patch)
		check(t, err)
		out, err := csrs.Patch(ctx, first.Name, types.MergePatchType, data, metav1.PatchOptions{}, sub...)
		check(t, err)
		return out
	}
	type object = map[string]any
	if out := patch(object{"metadata": object{"annotations": object{"patched": "true"}}}); out.Annotations["patched"] != "true" {
		t.Error("the patch of an annotation is lost")
	}
	got.Annotations = map[string]string{"updated": "true"}
	got.ResourceVersion = "" // unconditional
	if out, err := csrs.Update(ctx, got, metav1.UpdateOptions{}); err != nil || out.Annotations["updated"] != "true" {
		t.Errorf("update: %v", err)
	}
	saw(t, ctx, watching, watch.Modified, "updated")

	approval := func(sub, kind string) {
		t.Helper()
		condition := object{"type": kind, "status": "True", "reason": "Conformance", "message": "set from " + sub}
		out := patch(object{"metadata": object{"annotations": object{"patched-by": sub}}, "status": object{"conditions": []any{condition}}}, sub)
		if len(out.Status.Conditions) == 0 || out.Status.Conditions[len(out.Status.Conditions)-1].Message != "set from "+sub {
			t.Errorf("%s: conditions %+v", sub, out.Status.Conditions)
		}
	}
	approval("approval", "Approved")
	gotApproval, err := csrs.Get(ctx, first.Name, metav1.GetOptions{})
	check(t, err)
	gotApproval.Status.Conditions = append(gotApproval.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: "ApprovalUpdated", Status: corev1.ConditionTrue, Reason: "Conformance", Message: "set by an update",
	})
	updated, err := csrs.UpdateApproval(ctx, gotApproval.Name, gotApproval, metav1.UpdateOptions{})
	check(t, err)
	if len(updated.Status.Conditions) != 2 {
		t.Errorf("after UpdateApproval: %+v", updated.Status.Conditions)
	}
	updated.Status.Conditions = append(updated.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: "StatusUpdated", Status: corev1.ConditionTrue, Reason: "Conformance", Message: "set by an update",
	})
	updated.Spec.SignerName = "example.com/other" // not the status' to change
	status, err := csrs.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	check(t, err)
	if len(status.Status.Conditions) != 3 || status.Spec.SignerName != "example.com/conformance" {
		t.Errorf("after UpdateStatus: %+v, signer %s", status.Status.Conditions, status.Spec.SignerName)
	}

	check(t, csrs.Delete(ctx, first.Name, metav1.DeleteOptions{}))
	saw(t, ctx, watching, watch.Deleted, "")
	create()
	create()
	check(t, csrs.DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	if list, err := csrs.List(ctx, label); err != nil || len(list.Items) != 0 {
		t.Errorf("after deletecollection: %d, %v", len(list.Items), err)
	}
}

// saw waits for an event of that type whose object has that annotation.
func saw(t *testing.T, ctx context.Context, w watch.Interface, kind watch.EventType, annotation string) {
	t.Helper()
	for {
		select {
		case <-ctx.Done():
			t.Fatalf("no %s with annotation %q: %v", kind, annotation, ctx.Err())
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended before %s", kind)
			}
			obj, isObject := e.Object.(metav1.Object)
			if e.Type != kind || !isObject {
				continue
			}
			if _, has := obj.GetAnnotations()[annotation]; annotation == "" || has {
				return
			}
		}
	}
}

package peers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// gadgetHooks are the admission webhooks of Gadgets: blue unless said otherwise, and never
// negative.
type gadgetHooks struct{}

func (gadgetHooks) Default(_ context.Context, g *Gadget) error {
	if g.Spec.Colour == "" {
		g.Spec.Colour = "blue"
	}
	return nil
}

func (gadgetHooks) ValidateCreate(_ context.Context, g *Gadget) (admission.Warnings, error) {
	if g.Spec.Size < 0 {
		return nil, errors.New("the size is negative")
	}
	return nil, nil
}

func (h gadgetHooks) ValidateUpdate(ctx context.Context, _, g *Gadget) (admission.Warnings, error) {
	return h.ValidateCreate(ctx, g)
}

func (gadgetHooks) ValidateDelete(context.Context, *Gadget) (admission.Warnings, error) {
	return nil, nil
}

// gadgetOperator keeps a ConfigMap for each Gadget, and cleans up when it is deleted.
type gadgetOperator struct {
	client.Client
	cleaned chan string
}

const gadgetFinalizer = "things.example.com/cleanup"

func (o *gadgetOperator) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var g Gadget
	if err := o.Get(ctx, req.NamespacedName, &g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if g.DeletionTimestamp != nil {
		if controllerutil.RemoveFinalizer(&g, gadgetFinalizer) {
			if err := o.Update(ctx, &g); err != nil {
				return ctrl.Result{}, err
			}
			o.cleaned <- g.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&g, gadgetFinalizer) {
		if err := o.Update(ctx, &g); err != nil {
			return ctrl.Result{}, err
		}
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, o.Client, m, func() error {
		m.Data = map[string]string{"colour": g.Spec.Colour, "size": fmt.Sprint(g.Spec.Size)}
		return controllerutil.SetControllerReference(&g, m, o.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	if g.Status.Ready {
		return ctrl.Result{}, nil
	}
	g.Status.Ready = true
	return ctrl.Result{}, o.Status().Update(ctx, &g)
}

func gadgetWebhook(name, path string) (client admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
	client.Service = &admissionregistrationv1.ServiceReference{Namespace: "default", Name: name, Path: new(path)} // envtest replaces it by a URL
	rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{gadgets.Group}, APIVersions: []string{"v1"}, Resources: []string{"gadgets"}},
	}}
	return client, rules
}

// startEnvironment runs our API server as envtest runs upstream's, with a CRD of two
// versions and webhooks.
func startEnvironment(t *testing.T, scheme *runtime.Scheme) *envtest.Environment {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	check(t, err)
	none := admissionregistrationv1.SideEffectClassNone
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gadgets"}}
	hook := admissionregistrationv1.MutatingWebhook{Name: "default.things.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}
	hook.ClientConfig, hook.Rules = gadgetWebhook("gadgets", "/mutate-things-example-com-v1-gadget")
	mutating.Webhooks = append(mutating.Webhooks, hook)
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gadgets"}}
	hook1 := admissionregistrationv1.ValidatingWebhook{Name: "validate.things.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}
	hook1.ClientConfig, hook1.Rules = gadgetWebhook("gadgets", "/validate-things-example-com-v1-gadget")
	validating.Webhooks = append(validating.Webhooks, hook1)
	env := &envtest.Environment{
		BinaryAssetsDirectory: bin, Scheme: scheme, DownloadBinaryAssets: false,
		CRDs: []*apiextensionsv1.CustomResourceDefinition{gadgetCRD()}, ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks:   []*admissionregistrationv1.MutatingWebhookConfiguration{mutating},
			ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{validating},
		},
		ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute,
	}
	if _, err := env.Start(); err != nil {
		t.Fatalf("envtest (make build makes the binaries): %v", err)
	}
	t.Cleanup(func() { check(t, env.Stop()) })
	return env
}

// startOperator runs a manager with the operator and its webhooks, and returns what it
// cleans up.
func startOperator(t *testing.T, env *envtest.Environment) <-chan string {
	t.Helper()
	hooks := env.WebhookInstallOptions
	mgr, err := ctrl.NewManager(env.Config, ctrl.Options{
		Scheme: env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "gadgets", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		WebhookServer: webhook.NewServer(webhook.Options{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}),
	})
	check(t, err)
	o := &gadgetOperator{Client: mgr.GetClient(), cleaned: make(chan string, 10)}
	check(t, ctrl.NewControllerManagedBy(mgr).For(&Gadget{}).Owns(&corev1.ConfigMap{}).Complete(o))
	check(t, ctrl.NewWebhookManagedBy(mgr, &Gadget{}).WithDefaulter(gadgetHooks{}).WithValidator(gadgetHooks{}).Complete())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		check(t, <-done)
	})
	select {
	case <-mgr.Elected():
	case <-time.After(time.Minute):
		t.Fatal("the manager does not lead")
	}
	return o.cleaned
}

// An operator of controller-runtime works on our binaries as envtest starts them: caches,
// leader election, owned objects, finalizers, status, and webhooks for admission and
// conversion.
func TestControllerRuntime(t *testing.T) {
	scheme := runtime.NewScheme()
	check(t, clientgoscheme.AddToScheme(scheme))
	check(t, apiextensionsv1.AddToScheme(scheme))
	addGadgets(scheme)
	env := startEnvironment(t, scheme)
	cleaned := startOperator(t, env)
	api, err := client.New(env.Config, client.Options{Scheme: scheme})
	check(t, err)
	ctx := t.Context()

	bad := &Gadget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad"}}
	bad.Spec.Size = -1
	if err := api.Create(ctx, bad); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the size is negative") {
		t.Errorf("a negative size: %v", err)
	}
	old := &OldGadget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"}}
	old.Spec.Size = "3"
	check(t, api.Create(ctx, old))
	if old.Spec.Colour != "blue" {
		t.Errorf("the webhook for v1 did not see an object of v1beta1: %+v", old.Spec)
	}
	key := client.ObjectKeyFromObject(old)
	var g Gadget
	wait(t, "the operator is done", func() error {
		if err := api.Get(ctx, key, &g); err != nil {
			return err
		}
		if !g.Status.Ready || g.Spec.Size != 3 || len(g.Finalizers) != 1 {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	old.Spec.Size = "5"
	if err := api.Update(ctx, old); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old object: %v", err)
	}
	check(t, api.Patch(ctx, old, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"size":"5"}}`))))
	var m corev1.ConfigMap
	wait(t, "the ConfigMap follows", func() error {
		if err := api.Get(ctx, key, &m); err != nil {
			return err
		}
		if m.Data["size"] != "5" || m.Data["colour"] != "blue" || !metav1.IsControlledBy(&m, &g) {
			return fmt.Errorf("%+v", m)
		}
		return nil
	})
	check(t, api.Delete(ctx, &m))
	wait(t, "the ConfigMap is back", func() error { return api.Get(ctx, key, &corev1.ConfigMap{}) })
	check(t, api.Delete(ctx, &g))
	select {
	case <-cleaned:
	case <-time.After(time.Minute):
		t.Fatal("nothing is cleaned up")
	}
	if err := api.Get(ctx, key, &g); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted gadget: %v", err)
	}
}

// wait calls f until it returns nil.
func wait(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // a process outside
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

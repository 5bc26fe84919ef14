package conformance

import (
	"context"
	"strings"
	"testing"

	registration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// policyRows returns the rows about admission policies.
func policyRows() []testcase {
	return []testcase{
		{id: "mutatingadmissionpolicy-annotations", test: mutates(`Object{metadata: Object.metadata{annotations: {"my-annotation": "my-value"}}}`,
			func(d *appsv1.Deployment) bool {
				return d.Annotations["my-annotation"] == "my-value" && *d.Spec.Replicas == 1
			})},
		{id: "mutatingadmissionpolicy-api", test: mutatingPolicyAPI},
		{id: "mutatingadmissionpolicy-deployment", test: mutates(`Object{spec: Object.spec{replicas: object.spec.replicas + 100}}`,
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 101 })},
		{id: "mutatingadmissionpolicybinding-api", test: mutatingBindingAPI},
		{id: "validatingadmissionpolicy-api", test: validatingPolicyAPI},
		{id: "validatingadmissionpolicy-deployment", test: validates(nil, "object.spec.replicas > 1")},
		{id: "validatingadmissionpolicy-variables", test: validates([]registration.Variable{
			{Name: "replicas", Expression: "object.spec.replicas"}, {Name: "isEnough", Expression: "variables.replicas > 1"},
		}, "variables.isEnough")},
		{id: "validatingadmissionpolicybinding-api", test: validatingBindingAPI},
	}
}

// onDeployments matches the Deployments of a namespace.
func onDeployments(namespace string) *registration.MatchResources {
	return &registration.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		ResourceRules: []registration.NamedRuleWithOperations{{RuleWithOperations: registration.RuleWithOperations{
			Operations: []registration.OperationType{registration.Create, registration.Update},
			Rule:       registration.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
		}}},
	}
}

// unscheduled returns a Deployment whose pods no node takes.
func unscheduled(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Paused: true, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"none": "none"}, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}},
	}}
}

func mutatingPolicy(name, namespace, expression string) *registration.MutatingAdmissionPolicy {
	return &registration.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: registration.MutatingAdmissionPolicySpec{
		MatchConstraints: onDeployments(namespace), ReinvocationPolicy: registration.NeverReinvocationPolicy,
		Mutations: []registration.Mutation{{PatchType: registration.PatchTypeApplyConfiguration, ApplyConfiguration: &registration.ApplyConfiguration{Expression: expression}}},
	}}
}

func mutates(expression string, want func(*appsv1.Deployment) bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		api := admin.AdmissionregistrationV1()
		_, err := api.MutatingAdmissionPolicies().Create(ctx, mutatingPolicy(namespace, namespace, expression), metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() {
			_ = api.MutatingAdmissionPolicies().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		})
		_, err = api.MutatingAdmissionPolicyBindings().Create(ctx, &registration.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: registration.MutatingAdmissionPolicyBindingSpec{PolicyName: namespace},
		}, metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() {
			_ = api.MutatingAdmissionPolicyBindings().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		})
		d, err := admin.AppsV1().Deployments(namespace).Create(ctx, unscheduled("mutated", 1), metav1.CreateOptions{})
		check(t, err)
		if !want(d) {
			t.Errorf("created with %d replicas and the annotations %v", *d.Spec.Replicas, d.Annotations)
		}
	}
}

func validatingPolicy(name, namespace string, variables []registration.Variable, expression string) *registration.ValidatingAdmissionPolicy {
	return &registration.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: registration.ValidatingAdmissionPolicySpec{
		MatchConstraints: onDeployments(namespace), Variables: variables,
		Validations: []registration.Validation{{Expression: expression, MessageExpression: "'" + expression + " is not so'"}},
	}}
}

func validates(variables []registration.Variable, expression string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		api := admin.AdmissionregistrationV1()
		_, err := api.ValidatingAdmissionPolicies().Create(ctx, validatingPolicy(namespace, namespace, variables, expression), metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() {
			_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		})
		_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &registration.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec:       registration.ValidatingAdmissionPolicyBindingSpec{PolicyName: namespace, ValidationActions: []registration.ValidationAction{registration.Deny}},
		}, metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() {
			_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		})
		deployments := admin.AppsV1().Deployments(namespace)
		_, err = deployments.Create(ctx, unscheduled("single", 1), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), expression+" is not so") {
			t.Errorf("one replica: %v", err)
		}
		_, err = deployments.Create(ctx, unscheduled("replicated", 2), metav1.CreateOptions{})
		check(t, err)
	}
}

const registrationGroup = "admissionregistration.k8s.io/v1"

func mutatingPolicyAPI(t *testing.T, ctx context.Context, namespace string) {
	inDiscovery(t, registrationGroup, "mutatingadmissionpolicies")
	labels := map[string]string{"conformance": namespace}
	crud(t, ctx, crudOf[*registration.MutatingAdmissionPolicy, *registration.MutatingAdmissionPolicyList]{
		client: admin.AdmissionregistrationV1().MutatingAdmissionPolicies(), labels: labels,
		object: func(name string) *registration.MutatingAdmissionPolicy {
			p := mutatingPolicy(name, namespace, "Object{}")
			p.Labels = labels
			return p
		},
		count: func(l *registration.MutatingAdmissionPolicyList) int { return len(l.Items) },
	})
}

func mutatingBindingAPI(t *testing.T, ctx context.Context, namespace string) {
	inDiscovery(t, registrationGroup, "mutatingadmissionpolicybindings")
	labels := map[string]string{"conformance": namespace}
	crud(t, ctx, crudOf[*registration.MutatingAdmissionPolicyBinding, *registration.MutatingAdmissionPolicyBindingList]{
		client: admin.AdmissionregistrationV1().MutatingAdmissionPolicyBindings(), labels: labels,
		object: func(name string) *registration.MutatingAdmissionPolicyBinding {
			return &registration.MutatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: registration.MutatingAdmissionPolicyBindingSpec{PolicyName: namespace},
			}
		},
		count: func(l *registration.MutatingAdmissionPolicyBindingList) int { return len(l.Items) },
	})
}

func validatingPolicyAPI(t *testing.T, ctx context.Context, namespace string) {
	inDiscovery(t, registrationGroup, "validatingadmissionpolicies")
	inDiscovery(t, registrationGroup, "validatingadmissionpolicies/status")
	labels := map[string]string{"conformance": namespace}
	client := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	object := func(name string) *registration.ValidatingAdmissionPolicy {
		p := validatingPolicy(name, namespace, nil, "object.spec.replicas > 1")
		p.Labels = labels
		return p
	}
	crud(t, ctx, crudOf[*registration.ValidatingAdmissionPolicy, *registration.ValidatingAdmissionPolicyList]{
		client: client, labels: labels, object: object,
		count: func(l *registration.ValidatingAdmissionPolicyList) int { return len(l.Items) },
	})
	_, err := client.Create(ctx, object(namespace), metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { _ = client.Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
	condition := func(p *registration.ValidatingAdmissionPolicy, kind string) {
		t.Helper()
		for _, c := range p.Status.Conditions {
			if c.Type == kind && c.Status == metav1.ConditionTrue && c.Reason == "Tested" {
				return
			}
		}
		t.Errorf("the status has no condition %s: %+v", kind, p.Status)
	}
	const patch = `{"status":{"conditions":[{"type":"Patched","status":"True","reason":"Tested","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`
	p, err := client.Patch(ctx, namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	check(t, err)
	condition(p, "Patched")
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error { // with the controller that checks types
		if p, err = client.Get(ctx, namespace, metav1.GetOptions{}); err != nil {
			return err
		}
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: "Updated", Status: metav1.ConditionTrue, Reason: "Tested", LastTransitionTime: metav1.Now()})
		_, err = client.UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	}))
	p, err = client.Get(ctx, namespace, metav1.GetOptions{})
	check(t, err)
	condition(p, "Updated")
	got := &registration.ValidatingAdmissionPolicy{}
	check(t, admin.AdmissionregistrationV1().RESTClient().Get().Resource("validatingadmissionpolicies").Name(namespace).SubResource("status").Do(ctx).Into(got))
	condition(got, "Updated")
}

func validatingBindingAPI(t *testing.T, ctx context.Context, namespace string) {
	inDiscovery(t, registrationGroup, "validatingadmissionpolicybindings")
	labels := map[string]string{"conformance": namespace}
	crud(t, ctx, crudOf[*registration.ValidatingAdmissionPolicyBinding, *registration.ValidatingAdmissionPolicyBindingList]{
		client: admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings(), labels: labels,
		object: func(name string) *registration.ValidatingAdmissionPolicyBinding {
			return &registration.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: registration.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: namespace, ValidationActions: []registration.ValidationAction{registration.Deny},
			}}
		},
		count: func(l *registration.ValidatingAdmissionPolicyBindingList) int { return len(l.Items) },
	})
}

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func newCreatePodDisruptionBudget(f *Factory, run runCreateFunc) *cobra.Command {
	var selector, least, most string
	cmd := creator(f, run, &cobra.Command{
		Use: "poddisruptionbudget NAME --selector=SELECTOR --min-available=N", Aliases: []string{"pdb"}, Short: "Create a pod disruption budget with the specified name",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		kind := policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
		if (least == "") == (most == "") {
			return nil, kind, errors.New("one of --min-available and --max-unavailable is required")
		}
		parsed, err := metav1.ParseToLabelSelector(selector)
		if err != nil {
			return nil, kind, fmt.Errorf("--selector: %w", err)
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: parsed}}
		if least != "" {
			n := intstr.Parse(least)
			budget.Spec.MinAvailable = &n
		} else {
			n := intstr.Parse(most)
			budget.Spec.MaxUnavailable = &n
		}
		return budget, kind, nil
	})
	cmd.Flags().StringVar(&selector, "selector", "", "label selector of the pods that the budget protects")
	cmd.Flags().StringVar(&least, "min-available", "", "number or percentage of pods that must be available")
	cmd.Flags().StringVar(&most, "max-unavailable", "", "number or percentage of pods that may be unavailable")
	_ = cmd.MarkFlagRequired("selector")
	return cmd
}

func newCreatePriorityClass(f *Factory, run runCreateFunc) *cobra.Command {
	class := &schedulingv1.PriorityClass{}
	policy := ""
	cmd := creator(f, run, &cobra.Command{
		Use: "priorityclass NAME --value=N", Aliases: []string{"pc"}, Short: "Create a priority class with the specified name",
	}, func(name, _ string) (runtime.Object, schema.GroupVersionKind, error) {
		class.Name, class.PreemptionPolicy = name, (*corev1.PreemptionPolicy)(&policy)
		return class, schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), nil
	})
	cmd.Flags().Int32Var(&class.Value, "value", 0, "priority of pods with this class; higher values are scheduled first")
	cmd.Flags().BoolVar(&class.GlobalDefault, "global-default", false, "make this the class of pods that name none")
	cmd.Flags().StringVar(&class.Description, "description", "", "when to use this class")
	cmd.Flags().StringVar(&policy, "preemption-policy", string(corev1.PreemptLowerPriority), "policy for preempting pods with lower priority: PreemptLowerPriority or Never")
	return cmd
}

func newCreateQuota(f *Factory, run runCreateFunc) *cobra.Command {
	var hard, scopes []string
	cmd := creator(f, run, &cobra.Command{
		Use: "quota NAME --hard=RESOURCE=AMOUNT,...", Aliases: []string{"resourcequota"}, Short: "Create a quota with the specified name",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		kind := core("ResourceQuota")
		limits, err := amounts("--hard", hard)
		if err != nil {
			return nil, kind, err
		}
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: limits}}
		for _, s := range scopes {
			quota.Spec.Scopes = append(quota.Spec.Scopes, corev1.ResourceQuotaScope(s))
		}
		return quota, kind, nil
	})
	cmd.Flags().StringSliceVar(&hard, "hard", nil, "limits of the quota, as RESOURCE=AMOUNT pairs")
	cmd.Flags().StringSliceVar(&scopes, "scopes", nil, "scopes that the quota counts")
	return cmd
}

// amounts parses RESOURCE=AMOUNT pairs of a flag.
func amounts(flag string, pairs []string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s=%s: want RESOURCE=AMOUNT", flag, pair)
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", flag, pair, err)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

func newCreateIngress(f *Factory, run runCreateFunc) *cobra.Command {
	var class, otherwise string
	var rules, annotations []string
	cmd := creator(f, run, &cobra.Command{
		Use: "ingress NAME --rule=HOST/PATH=SERVICE:PORT[,tls[=SECRET]]", Aliases: []string{"ing"}, Short: "Create an ingress with the specified name",
		Example: `  podium create ingress web --class=default --rule="web.example/*=web:80,tls=web-cert"`,
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		kind := networkingv1.SchemeGroupVersion.WithKind("Ingress")
		if len(rules) == 0 && otherwise == "" {
			return nil, kind, errors.New("not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)")
		}
		notes, err := pairs("--annotation", annotations)
		if err != nil {
			return nil, kind, err
		}
		in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: notes}}
		if class != "" {
			in.Spec.IngressClassName = &class
		}
		if otherwise != "" {
			backend, err := ingressBackend("--default-backend", otherwise)
			if err != nil {
				return nil, kind, err
			}
			in.Spec.DefaultBackend = backend
		}
		for _, rule := range rules {
			if err := addIngressRule(&in.Spec, rule); err != nil {
				return nil, kind, err
			}
		}
		return in, kind, nil
	})
	cmd.Flags().StringArrayVar(&annotations, "annotation", nil, "annotation of the ingress, as KEY=VALUE; may be repeated")
	cmd.Flags().StringVar(&class, "class", "", "ingress class to use")
	cmd.Flags().StringVar(&otherwise, "default-backend", "", "service for requests that no rule matches, as SERVICE:PORT")
	cmd.Flags().StringArrayVar(&rules, "rule", nil, "rule as HOST/PATH=SERVICE:PORT[,tls[=SECRET]]; a PATH that ends with * matches prefixes; may be repeated")
	return cmd
}

func ingressBackend(flag, text string) (*networkingv1.IngressBackend, error) {
	name, port, ok := strings.Cut(text, ":")
	if !ok || name == "" || port == "" {
		return nil, fmt.Errorf("%s=%s: want SERVICE:PORT", flag, text)
	}
	service := &networkingv1.IngressServiceBackend{Name: name}
	if p := intstr.Parse(port); p.Type == intstr.Int {
		service.Port.Number = p.IntVal
	} else {
		service.Port.Name = port
	}
	return &networkingv1.IngressBackend{Service: service}, nil
}

// addIngressRule adds a rule and its certificate. Rules of one host share an entry.
func addIngressRule(spec *networkingv1.IngressSpec, text string) error {
	rule, secret, tls := strings.Cut(text, ",tls")
	where, to, ok := strings.Cut(rule, "=")
	host, path, slash := strings.Cut(where, "/")
	if !ok || !slash || tls && secret != "" && !strings.HasPrefix(secret, "=") {
		return fmt.Errorf("--rule=%s: want HOST/PATH=SERVICE:PORT[,tls[=SECRET]]", text)
	}
	backend, err := ingressBackend("--rule", to)
	if err != nil {
		return err
	}
	kind := networkingv1.PathTypeExact
	if trimmed, prefix := strings.CutSuffix(path, "*"); prefix {
		path, kind = trimmed, networkingv1.PathTypePrefix
	}
	one := networkingv1.HTTPIngressPath{Path: "/" + path, PathType: &kind, Backend: *backend}
	if tls {
		entry := networkingv1.IngressTLS{SecretName: strings.TrimPrefix(secret, "=")}
		if host != "" {
			entry.Hosts = []string{host}
		}
		spec.TLS = append(spec.TLS, entry)
	}
	for i := range spec.Rules {
		if spec.Rules[i].Host == host {
			spec.Rules[i].HTTP.Paths = append(spec.Rules[i].HTTP.Paths, one)
			return nil
		}
	}
	spec.Rules = append(spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
		HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{one}},
	}})
	return nil
}

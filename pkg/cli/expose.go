package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/cli/rest"
)

// deriveOptions are the flags of commands that create an object for each selected one.
type deriveOptions struct {
	change
	overrides
	verb string
	make func(t target) (runtime.Object, schema.GroupVersionKind, error)
}

type runDeriveFunc = func(context.Context, *deriveOptions) error

func runDerive(ctx context.Context, o *deriveOptions) error {
	return o.each(ctx, true, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		typed, gvk, err := o.make(t)
		if err != nil {
			return nil, "", err
		}
		obj, err := toObject(typed, gvk)
		if err != nil {
			return nil, "", err
		}
		if obj, err = o.override(obj); err != nil {
			return nil, "", err
		}
		if err := o.saveConfig(obj); err != nil || o.DryRun == "client" {
			return obj, o.verb, err
		}
		k, err := c.ByGVK(ctx, gvk)
		if err != nil {
			return nil, "", err
		}
		made, err := c.Create(ctx, k, t.Namespace, obj, o.query())
		return made, o.verb, err
	})
}

// exposeFlags are the flags of expose.
type exposeFlags struct {
	name, kind, target, protocol, clusterIP, selector string
	labelPairs, externalIP, loadBalancerIP, affinity  string
	port                                              int32
}

func newExpose(f *Factory, run runDeriveFunc) *cobra.Command {
	o := &deriveOptions{change: change{Factory: f}, verb: "exposed"}
	var e exposeFlags
	cmd := &cobra.Command{
		Use:               "expose TYPE/NAME --port=PORT",
		Short:             "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
		Example:           "  podium expose deployment/web --port=80 --target-port=8080",
		ValidArgsFunction: f.completeResources,
		PreRunE:           func(cmd *cobra.Command, _ []string) error { return o.checkOverrides(cmd) },
		RunE:              on(&o.selection, o, run),
	}
	o.make = func(t target) (runtime.Object, schema.GroupVersionKind, error) {
		svc, err := e.service(t)
		return svc, core("Service"), err
	}
	cmd.Flags().StringVar(&e.name, "name", "", "name of the Service (default: that of the object)")
	cmd.Flags().Int32Var(&e.port, "port", 0, "port of the Service (default: the ports of the containers, or of the Service that is exposed)")
	cmd.Flags().StringVar(&e.target, "target-port", "", "name or number of the containers' port (default: that of the Service)")
	cmd.Flags().StringVar(&e.protocol, "protocol", "", "protocol of the port: TCP, UDP or SCTP (default: those of the containers for this port, or TCP)")
	cmd.Flags().StringVar(&e.kind, "type", "", "type of the Service: ClusterIP, NodePort or LoadBalancer (default ClusterIP)")
	cmd.Flags().StringVar(&e.clusterIP, "cluster-ip", "", "ClusterIP to assign, or None for a headless service")
	cmd.Flags().StringVar(&e.selector, "selector", "", "labels of the Service's pods, as KEY=VALUE pairs (default: those that the object selects)")
	cmd.Flags().StringVarP(&e.labelPairs, "labels", "l", "", "labels of the Service, as KEY=VALUE pairs (default: those of the object)")
	cmd.Flags().StringVar(&e.externalIP, "external-ip", "", "additional external IP address of the Service")
	cmd.Flags().StringVar(&e.loadBalancerIP, "load-balancer-ip", "", "IP address to assign to the load balancer (for the type LoadBalancer)")
	cmd.Flags().StringVar(&e.affinity, "session-affinity", "", "session affinity of the Service: None or ClientIP")
	o.writeFlags(cmd, "the objects")
	o.saveConfigFlag(cmd)
	o.overrideFlags(cmd)
	return cmd
}

func (e *exposeFlags) service(t target) (*corev1.Service, error) {
	selector, err := e.labels(t)
	if err != nil {
		return nil, err
	}
	ports := e.ports(t)
	if len(ports) == 0 && e.clusterIP != corev1.ClusterIPNone {
		return nil, errors.New("couldn't find port via --port flag or introspection")
	}
	labels := t.Object.GetLabels()
	if e.labelPairs != "" {
		if labels, err = pairs("--labels", strings.Split(e.labelPairs, ",")); err != nil {
			return nil, err
		}
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: cmp.Or(e.name, t.Name), Labels: labels},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceType(e.kind), ClusterIP: e.clusterIP, Selector: selector, Ports: ports,
			LoadBalancerIP: e.loadBalancerIP, SessionAffinity: corev1.ServiceAffinity(e.affinity),
		},
	}
	if e.externalIP != "" {
		svc.Spec.ExternalIPs = []string{e.externalIP}
	}
	if e.loadBalancerIP != "" && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, errors.New("--load-balancer-ip is only for --type=LoadBalancer")
	}
	return svc, nil
}

// labels returns the selector of the Service: that of the object, or a pod's labels.
func (e *exposeFlags) labels(t target) (map[string]string, error) {
	if e.selector != "" {
		return pairs("--selector", strings.Split(e.selector, ","))
	}
	obj := t.Object.Object
	if m, ok, _ := unstructured.NestedStringMap(obj, "spec", "selector", "matchLabels"); ok {
		if more, _, _ := unstructured.NestedSlice(obj, "spec", "selector", "matchExpressions"); len(more) > 0 {
			return nil, fmt.Errorf("%s selects its pods by expressions, which a Service cannot: give --selector", t)
		}
		return m, nil
	}
	if m, ok, _ := unstructured.NestedStringMap(obj, "spec", "selector"); ok {
		return m, nil
	}
	if t.Kind.Kind == "Pod" && len(t.Object.GetLabels()) > 0 {
		return t.Object.GetLabels(), nil
	}
	return nil, fmt.Errorf("cannot expose %s: it selects no pods by labels; give --selector", t)
}

// ports returns the port of the flags, or those of the object, each with the protocols
// that the object has for it.
func (e *exposeFlags) ports(t target) (out []corev1.ServicePort) {
	numbers, protocols := portsOf(t)
	if e.port != 0 {
		numbers = []int32{e.port}
	}
	for i, n := range numbers {
		uses := protocols[n]
		switch {
		case e.protocol != "":
			uses = []corev1.Protocol{corev1.Protocol(e.protocol)}
		case len(uses) == 0:
			uses = []corev1.Protocol{corev1.ProtocolTCP}
		}
		for _, protocol := range uses {
			p := corev1.ServicePort{Port: n, Protocol: protocol, TargetPort: intstr.FromInt32(n)}
			if e.target != "" {
				p.TargetPort = intstr.Parse(e.target)
			}
			switch {
			case len(uses) > 1:
				p.Name = fmt.Sprintf("port-%d-%s", i+1, strings.ToLower(string(protocol)))
			case len(numbers) > 1:
				p.Name = fmt.Sprintf("port-%d", i+1)
			}
			out = append(out, p)
		}
	}
	return out
}

// portsOf returns the ports of an object's containers, or of a Service, in order, and
// the protocols of each.
func portsOf(t target) (numbers []int32, protocols map[int32][]corev1.Protocol) {
	protocols = map[int32][]corev1.Protocol{}
	add := func(of map[string]any, field string, path ...string) {
		ports, _, _ := unstructured.NestedSlice(of, path...)
		for _, p := range ports {
			port, _ := p.(map[string]any)
			number, ok, _ := unstructured.NestedInt64(port, field)
			if !ok {
				continue
			}
			n, protocol := int32(number), corev1.ProtocolTCP
			if text, _ := port["protocol"].(string); text != "" {
				protocol = corev1.Protocol(text)
			}
			if protocols[n] == nil {
				numbers = append(numbers, n)
			}
			if !slices.Contains(protocols[n], protocol) {
				protocols[n] = append(protocols[n], protocol)
			}
		}
	}
	if t.Kind.GroupKind() == core("Service").GroupKind() {
		add(t.Object.Object, "port", "spec", "ports")
		return numbers, protocols
	}
	path, err := podSpecPath(t)
	if err != nil {
		return nil, nil
	}
	containers, _, _ := unstructured.NestedSlice(t.Object.Object, append(path, "containers")...)
	for _, c := range containers {
		if container, ok := c.(map[string]any); ok {
			add(container, "containerPort", "ports")
		}
	}
	return numbers, protocols
}

func newAutoscale(f *Factory, run runDeriveFunc) *cobra.Command {
	o := &deriveOptions{change: change{Factory: f}, verb: "autoscaled"}
	var name, cpu, memory string
	var least, most, percent int32
	cmd := &cobra.Command{
		Use:               "autoscale TYPE/NAME --max=N [--min=N] [--cpu=TARGET] [--memory=TARGET]",
		Short:             "Auto-scale a deployment, replica set, stateful set, or replication controller",
		Example:           "  podium autoscale deployment/web --min=2 --max=10 --cpu=80%",
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
	o.make = func(t target) (runtime.Object, schema.GroupVersionKind, error) {
		kind := autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
		hpa := &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: most, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: t.Kind.GroupVersion().String(), Kind: t.Kind.Kind, Name: t.Name,
			}},
		}
		if hpa.Name == "" {
			hpa.Name = t.Name
		}
		if least > 0 {
			hpa.Spec.MinReplicas = &least
		}
		if percent >= 0 {
			cpu = fmt.Sprintf("%d%%", percent)
		}
		for resource, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text == "" {
				continue
			}
			metric, err := resourceMetric(resource, text)
			if err != nil {
				return nil, kind, err
			}
			hpa.Spec.Metrics = append(hpa.Spec.Metrics, metric)
		}
		return hpa, kind, nil
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the autoscaler (default: that of the object)")
	cmd.Flags().Int32Var(&least, "min", 0, "lower limit for the number of pods (default 1)")
	cmd.Flags().Int32Var(&most, "max", 0, "upper limit for the number of pods")
	cmd.Flags().StringVar(&cpu, "cpu", "", "target for the CPU of the pods: a percentage of their requests (80%), or an amount (500m)")
	cmd.Flags().StringVar(&memory, "memory", "", "target for the memory of the pods: a percentage of their requests (80%), or an amount (200Mi)")
	cmd.Flags().Int32Var(&percent, "cpu-percent", -1, "deprecated: use --cpu with a percentage")
	_ = cmd.Flags().MarkHidden("cpu-percent")
	cmd.MarkFlagsMutuallyExclusive("cpu", "cpu-percent")
	_ = cmd.MarkFlagRequired("max")
	o.writeFlags(cmd, "the objects")
	o.saveConfigFlag(cmd)
	return cmd
}

func resourceMetric(name corev1.ResourceName, text string) (autoscalingv2.MetricSpec, error) {
	source := &autoscalingv2.ResourceMetricSource{Name: name}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		n := intstr.Parse(percent)
		if n.Type != intstr.Int || n.IntVal <= 0 {
			return autoscalingv2.MetricSpec{}, fmt.Errorf("--%s=%s: want a percentage such as 80%%, or an amount", name, text)
		}
		source.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &n.IntVal}
	} else {
		list, err := amounts("--"+string(name), []string{string(name) + "=" + text})
		if err != nil {
			return autoscalingv2.MetricSpec{}, err
		}
		q := list[name]
		source.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &q}
	}
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: source}, nil
}

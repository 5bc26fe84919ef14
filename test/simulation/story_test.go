package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/scheme"
)

// insist retries like a patient user, until the server has answered.
func (w *world) insist(ctx context.Context, what string, try func() error) {
	var err error
	for end := time.Now().Add(30 * time.Minute); time.Now().Before(end); pause(ctx, time.Second) {
		if err = try(); err == nil || ctx.Err() != nil {
			return
		}
	}
	w.problem("%s: %v", what, err)
}

func create[T scheme.Object](ctx context.Context, w *world, obj T) {
	w.insist(ctx, "create "+obj.GetName(), func() error {
		_, err := client.For[T](w.user).Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func edit[T scheme.Object](ctx context.Context, w *world, namespace, name string, change func(T)) {
	r := client.For[T](w.user).In(namespace)
	w.insist(ctx, "edit "+name, func() error {
		obj, err := r.Get(ctx, name)
		if err != nil {
			return err
		}
		change(obj)
		_, err = r.Update(ctx, obj)
		return err
	})
}

func remove[T scheme.Object](ctx context.Context, w *world, namespace, name string, policy metav1.DeletionPropagation) {
	r := client.For[T](w.user).In(namespace)
	w.insist(ctx, "delete "+name, func() error {
		err := r.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func list[T scheme.Object](ctx context.Context, w *world) []T {
	var out []T
	w.insist(ctx, "list", func() error {
		l, err := client.For[T](w.user).List(ctx, metav1.ListOptions{})
		if err == nil {
			out = l.Items
		}
		return err
	})
	return out
}

// template returns a template of pods with a readiness probe, a token and a setting.
func template(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: image,
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			Env: []corev1.EnvVar{{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "colour",
			}}}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
				PeriodSeconds: 10,
			},
		}}},
	}
}

func deployment(namespace, name, image string, replicas int) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name, image),
		},
	}
}

func daemonSet(name, image string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, image)},
	}
}

func budget(app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
}

func service(namespace, name string, headless bool) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	if headless {
		s.Name, s.Spec.ClusterIP = name+"-headless", corev1.ClusterIPNone
	}
	return s
}

func settings(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}, Data: map[string]string{"colour": "blue"}}
}

// task returns a pod that runs to completion once.
func task(name string) *corev1.Pod {
	t := template(name, "task:1")
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.Spec.Containers[0].ReadinessProbe = nil
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: t.Labels}, Spec: t.Spec}
}

func image(name string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = name }
}

func replicas(n int) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(n)) }
}

// live is the story: some of everything, with each change made before the previous one has settled.
func live(ctx context.Context, w *world) {
	n, few := w.size.pods, max(w.size.pods/6, 2)
	random := w.plan.draw("story")
	wait := func() { pause(ctx, time.Duration(random.IntN(40_000))*time.Millisecond) }
	// A controller that is down while an image is set has no revision of it.
	noticed := func(image string) {
		w.insist(ctx, "a replica set of "+image, func() error {
			for _, rs := range list[*appsv1.ReplicaSet](ctx, w) {
				if rs.Namespace == "default" && rs.Spec.Template.Spec.Containers[0].Image == image {
					return nil
				}
			}
			return errors.New("there is none")
		})
		wait()
	}

	defer w.watchIdentities(ctx)()
	create(ctx, w, settings("default"))
	create(ctx, w, service("default", "web", false))
	create(ctx, w, service("default", "web", true))
	create(ctx, w, service("default", "db", true))
	create(ctx, w, statefulSet("db", "db:1", 3))
	create(ctx, w, daemonSet("agent", "agent:1"))
	create(ctx, w, budget("web"))
	create(ctx, w, deployment("default", "web", "web:1", n))
	create(ctx, w, deployment("default", "brief", "brief:1", few))
	create(ctx, w, deployment("default", "orphaned", "orphaned:1", 2))
	for i := range 3 {
		create(ctx, w, task(fmt.Sprintf("task-%d", i)))
	}
	create(ctx, w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}})
	create(ctx, w, settings("doomed"))
	create(ctx, w, service("doomed", "web", false))
	create(ctx, w, deployment("doomed", "web", "web:1", few))
	noticed("web:1")
	edit(ctx, w, "default", "web", image("web:2"))
	edit(ctx, w, "default", "db", setImage("db:2", 5))
	noticed("web:2")
	edit(ctx, w, "default", "agent", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "agent:2" })
	w.killContainers(few)
	edit(ctx, w, "default", "brief", replicas(2*few))
	wait()
	edit(ctx, w, "default", "web", replicas(n/2))
	edit(ctx, w, "default", "db", setImage("db:3", 2))
	remove[*appsv1.Deployment](ctx, w, "default", "brief", metav1.DeletePropagationForeground)
	remove[*corev1.Namespace](ctx, w, "", "doomed", metav1.DeletePropagationBackground)
	wait()
	edit(ctx, w, "default", "web", func(d *appsv1.Deployment) { image("web:3")(d); replicas(n)(d) })
	remove[*appsv1.Deployment](ctx, w, "default", "orphaned", metav1.DeletePropagationOrphan)
	wait()
	w.killSandboxes(2)
	w.daemons[serverName(0)].crashUnder(w.plan)
	wait()
	edit(ctx, w, "default", "web", replicas(n-few))
	if !w.plan.stopped() {
		pause(ctx, 2*time.Minute)
	}
}

// crashUnder kills a daemon unless the plan has no faults.
func (d *daemon) crashUnder(p *plan) {
	if !p.stopped() {
		p.note("%s: crash", d.name)
		d.crash()
	}
}

// runsOnce reports whether the containers of a pod of this name must be started once only.
func runsOnce(pod string) bool {
	return strings.HasPrefix(pod, "task-") || strings.HasPrefix(pod, "batch-")
}

// comesBack reports whether a container's pod reaches the same state after the container was
// killed. A task does not: it runs once, and has then failed.
func comesBack(c crifake.Container) bool {
	return c.Namespace == "default" && !runsOnce(c.Pod)
}

// killContainers kills some running containers, as the kernel does when memory is exhausted.
func (w *world) killContainers(n int) {
	for i, m := range w.nodes {
		for _, c := range m.runtime.Containers() {
			if i%2 == 0 && n > 0 && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && comesBack(c) {
				w.plan.note("%s: container %s of %s killed", m.name, c.Name, c.Pod)
				m.runtime.Kill(c.ID, 137)
				n--
			}
		}
	}
}

// killSandboxes kills some pods with all their containers, as a reboot would.
func (w *world) killSandboxes(n int) {
	for _, m := range slices.Backward(w.nodes) {
		for _, c := range m.runtime.Containers() {
			if n > 0 && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && comesBack(c) {
				w.plan.note("%s: sandbox of %s killed", m.name, c.Pod)
				m.runtime.KillSandbox(c.UID)
				n--
			}
		}
	}
}

// settle waits until nothing has been written for so long that an address allocated for a Service
// that was never stored has been released, too: that takes the servers up to six minutes.
func (w *world) settle(ctx context.Context) {
	const quiet, limit = 7 * time.Minute, 2 * time.Hour
	for end := time.Now().Add(limit); time.Now().Before(end); pause(ctx, 5*time.Second) {
		if w.journal.since() >= quiet {
			return
		}
	}
	w.problem("the cluster has not come to rest in %s", limit)
}

// watchRest checks that nothing is written while nothing changes.
func (w *world) watchRest(ctx context.Context) {
	const long = 21 * time.Minute
	w.journal.count()
	pause(ctx, long)
	for _, line := range w.journal.restless(long) {
		w.problem("%s", line)
	}
}

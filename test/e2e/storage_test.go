package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// localVolume returns a class without provisioner and a volume of it on the node.
func localVolume(name, node, path string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: %[1]s
  local: {path: %[3]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[2]s]}]}]}}
`, name, node, path)
}

func claimOf(name, class string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, name, class)
}

// claiming returns a pod that runs a shell command beside the data of a claim, as an
// ordinary user of the group 2000.
func claiming(name, claim, command string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  containers:
    - {name: box, image: localhost/podium/busybox:v1, command: [sh, -c, %q], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, name, command, claim)
}

func succeeded(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }

// deleted deletes an object and waits until it is gone.
func (s *space) deleted(what string, del func() error) {
	s.Helper()
	eventually(s.T, time.Minute, what+" is gone", func() error {
		if err := del(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete: %v", err)
		}
		return nil
	})
}

// A claim gets a volume when its first pod is placed. What pods write stays when they go,
// until an administrator removes it.
func TestDataOutlivesItsPods(t *testing.T) {
	t.Parallel()
	s, dir := newSpace(t), t.TempDir()
	claims, volumes := in[*corev1.PersistentVolumeClaim](s), client.For[*corev1.PersistentVolume](s.api)
	s.apply(localVolume(s.name, "node-a", dir))
	s.apply(claimOf("data", s.name))
	s.said("data", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")

	s.apply(claiming("writer", "data", "echo kept > /data/file"))
	s.pod("writer", "ends", succeeded)
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "kept\n" {
		t.Errorf("the volume has %q, %v", data, err)
	}
	s.deleted("the writer", func() error { return in[*corev1.Pod](s).Delete(t.Context(), "writer", metav1.DeleteOptions{}) })
	s.apply(claiming("reader", "data", "grep -q kept /data/file"))
	s.pod("reader", "reads what was written", succeeded)

	// The claim stays as long as a pod uses it, and the volume stays after it.
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, err := claims.Get(t.Context(), "data"); err != nil || c.DeletionTimestamp == nil {
		t.Errorf("a claim in use: %v, %v", c, err)
	}
	s.deleted("the reader", func() error { return in[*corev1.Pod](s).Delete(t.Context(), "reader", metav1.DeleteOptions{}) })
	eventually(t, time.Minute, "the volume is released", func() error {
		v, err := volumes.Get(t.Context(), s.name)
		if err == nil && v.Status.Phase != corev1.VolumeReleased {
			err = fmt.Errorf("it is %s", v.Status.Phase)
		}
		return err
	})
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "kept\n" {
		t.Errorf("the released volume has %q, %v", data, err)
	}
	s.deleted("the volume", func() error { return volumes.Delete(t.Context(), s.name, metav1.DeleteOptions{}) })
	s.deleted("the class", func() error {
		return client.For[*storagev1.StorageClass](s.api).Delete(t.Context(), s.name, metav1.DeleteOptions{})
	})
}

// A provisioner is told the node of the first pod, and the pod waits for its volume.
func TestPodsWaitForProvisionedVolumes(t *testing.T) {
	t.Parallel()
	s, dir := newSpace(t), t.TempDir()
	claims, volumes := in[*corev1.PersistentVolumeClaim](s), client.For[*corev1.PersistentVolume](s.api)
	classes := client.For[*storagev1.StorageClass](s.api)
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Provisioner: "disks.example.com", VolumeBindingMode: &wait}
	if _, err := classes.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	s.apply(claimOf("data", s.name))
	s.apply(claiming("p", "data", "touch /data/file"))
	var claim *corev1.PersistentVolumeClaim
	eventually(t, time.Minute, "the provisioner is asked", func() (err error) {
		claim, err = claims.Get(t.Context(), "data")
		if err == nil && claim.Annotations["volume.kubernetes.io/storage-provisioner"] != "disks.example.com" {
			err = fmt.Errorf("the claim has the annotations %v", claim.Annotations)
		}
		return err
	})
	if got, want := claim.Annotations["volume.kubernetes.io/selected-node"], "node-a"; got != want {
		t.Errorf("the node %q is selected, want %q", got, want)
	}
	// The provisioner is this test.
	made := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "disks.example.com"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: s.name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.name, Name: "data", UID: claim.UID},
		},
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := volumes.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	s.pod("p", "ends", succeeded)
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
	s.deleted("the pod", func() error { return in[*corev1.Pod](s).Delete(t.Context(), "p", metav1.DeleteOptions{}) })
	s.deleted("the claim", func() error { return claims.Delete(t.Context(), "data", metav1.DeleteOptions{}) })
	s.deleted("the volume", func() error { return volumes.Delete(t.Context(), s.name, metav1.DeleteOptions{}) })
	s.deleted("the class", func() error { return classes.Delete(t.Context(), s.name, metav1.DeleteOptions{}) })
}

// Each pod of a StatefulSet has a claim of its own, which the pod that replaces it gets,
// too.
func TestStatefulSetKeepsItsData(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	classes, volumes := client.For[*storagev1.StorageClass](s.api), client.For[*corev1.PersistentVolume](s.api)
	s.apply(localVolume(s.name, "node-a", t.TempDir()))
	second := strings.SplitN(localVolume(s.name+"-b", "node-a", t.TempDir()), "\n---\n", 2)[1]
	s.apply(strings.Replace(second, "storageClassName: "+s.name+"-b", "storageClassName: "+s.name, 1))
	s.apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: db
          image: localhost/podium/busybox:v1
          command: [sh, -c, "echo $(hostname) >> /data/starts; sleep 3600"]
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, s.name))
	s.ready("db-1") // the pods start in order
	first := s.ready("db-0")
	if err := in[*corev1.Pod](s).Delete(t.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pod("db-0", "is replaced", func(p *corev1.Pod) bool { return p.UID != first.UID })
	s.ready("db-0")
	for pod, want := range map[string]string{"db-0": "db-0\ndb-0", "db-1": "db-1"} {
		if got := s.exec(pod, "cat /data/starts"); got != want {
			t.Errorf("%s has the data %q, want %q", pod, got, want)
		}
	}
	if _, err := in[*corev1.PersistentVolumeClaim](s).Get(t.Context(), "data-db-0"); err != nil {
		t.Error(err)
	}

	// Claims outlive the set, volumes the claims.
	s.deleted("the set", func() error { return in[*appsv1.StatefulSet](s).Delete(t.Context(), "db", metav1.DeleteOptions{}) })
	for _, pod := range []string{"db-0", "db-1"} {
		s.deleted(pod, func() error {
			_, err := in[*corev1.Pod](s).Get(t.Context(), pod)
			return err
		})
		s.deleted("its claim", func() error {
			return in[*corev1.PersistentVolumeClaim](s).Delete(t.Context(), "data-"+pod, metav1.DeleteOptions{})
		})
	}
	for _, name := range []string{s.name, s.name + "-b"} {
		s.deleted("a volume", func() error { return volumes.Delete(t.Context(), name, metav1.DeleteOptions{}) })
	}
	s.deleted("the class", func() error { return classes.Delete(t.Context(), s.name, metav1.DeleteOptions{}) })
}

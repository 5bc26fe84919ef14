package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// localPath returns the directory of the volume that a claim is bound to, and the volume.
func (s *space) localPath(claim string) (dir, volume string) {
	s.Helper()
	c, err := in[*corev1.PersistentVolumeClaim](s).Get(s.Context(), claim)
	if err != nil {
		s.Fatal(err)
	}
	v, err := client.For[*corev1.PersistentVolume](s.api).Get(s.Context(), c.Spec.VolumeName)
	if err != nil {
		s.Fatal(err)
	}
	return v.Spec.Local.Path, v.Name
}

// vanished waits until a volume and its directory are gone.
func (s *space) vanished(dir, volume string) {
	s.Helper()
	eventually(s.T, time.Minute, "the volume is gone", func() error {
		if _, err := client.For[*corev1.PersistentVolume](s.api).Get(s.Context(), volume); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get volume %s: %v", volume, err)
		}
		return nil
	})
	for _, path := range []string{dir, filepath.Join(filepath.Dir(dir), ".deleted-"+volume)} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			s.Errorf("%s: %v", path, err)
		}
	}
}

// A StatefulSet needs no administrator: its claims get directories of the default class.
// The data outlive the pods and go with the claims.
func TestStatefulSetOnTheDefaultClass(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 1000}
      containers:
        - name: db
          image: localhost/podium/busybox:v1
          command: [sh, -c, "echo start >> /data/starts; ln -sfn /etc /data/link; sleep 3600"]
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
`)
	first := s.ready("db-0")
	dir, volume := s.localPath("data-db-0")
	if err := in[*corev1.Pod](s).Delete(t.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pod("db-0", "is replaced", func(p *corev1.Pod) bool { return p.UID != first.UID })
	s.ready("db-0")
	if got := s.exec("db-0", "cat /data/starts"); got != "start\nstart" {
		t.Errorf("the data are %q", got)
	}
	s.expand("data-db-0", "32Mi")
	s.deleted("the set", func() error { return in[*appsv1.StatefulSet](s).Delete(t.Context(), "db", metav1.DeleteOptions{}) })
	s.vanished(dir, volume)
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Errorf("a link in the volume was followed: %v", err)
	}
}

// expand requests a size for a claim and waits until the claim has it.
func (s *space) expand(claim, size string) {
	s.Helper()
	claims := in[*corev1.PersistentVolumeClaim](s)
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	if _, err := claims.Patch(s.Context(), claim, types.MergePatchType, []byte(patch)); err != nil {
		s.Fatal(err)
	}
	eventually(s.T, time.Minute, claim+" has "+size, func() error {
		c, err := claims.Get(s.Context(), claim)
		if err != nil {
			return err
		}
		if has := c.Status.Capacity[corev1.ResourceStorage]; has.String() != size {
			return fmt.Errorf("it has %s: %+v", has.String(), c.Status)
		}
		return nil
	})
}

// The claim and the data of an ephemeral volume exist as long as the pod.
func TestEphemeralVolumesGoWithTheirPod(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  containers:
    - {name: box, image: localhost/podium/busybox:v1, command: [sh, -c, "echo kept > /data/file; sleep 3600"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
    - name: data
      ephemeral:
        volumeClaimTemplate:
          metadata: {labels: {tier: scratch}}
          spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 16Mi}}}
`)
	pod := s.ready("box")
	dir, volume := s.localPath("box-data")
	claim, err := in[*corev1.PersistentVolumeClaim](s).Get(t.Context(), "box-data")
	if err != nil || !metav1.IsControlledBy(claim, pod) || claim.Labels["tier"] != "scratch" {
		t.Errorf("the claim: %+v %v", claim.ObjectMeta, err)
	}
	eventually(t, time.Minute, "the volume has what the pod wrote", func() error {
		data, err := os.ReadFile(filepath.Join(dir, "file"))
		if err == nil && string(data) != "kept\n" {
			err = fmt.Errorf("it has %q", data)
		}
		return err
	})
	s.deleted("the pod", func() error { return in[*corev1.Pod](s).Delete(t.Context(), "box", metav1.DeleteOptions{}) })
	s.vanished(dir, volume)
	eventually(t, time.Minute, "the claim is gone", func() error {
		if _, err := in[*corev1.PersistentVolumeClaim](s).Get(t.Context(), "box-data"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %v", err)
		}
		return nil
	})
}

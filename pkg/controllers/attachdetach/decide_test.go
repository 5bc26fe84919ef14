package attachdetach

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/intree"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// healthy returns a node that uses volumes.
func healthy(inUse ...corev1.UniqueVolumeName) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{
		VolumesInUse: inUse, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

func unhealthy(inUse ...corev1.UniqueVolumeName) *corev1.Node {
	n := healthy(inUse...)
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	return n
}

func attachmentOf(pv string, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + pv},
		Spec:       storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

func pvOf(modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{AccessModes: modes}}
}

// shown is a plan by names.
type shown struct {
	Attach, Confirm, Blocked, Detach, Attached []string
	Again                                      time.Duration
}

func show(p plan) (s shown) {
	for _, w := range p.attach {
		s.Attach = append(s.Attach, w.pv.Name)
	}
	for _, a := range p.confirm {
		s.Confirm = append(s.Confirm, a.Name)
	}
	for _, w := range p.blocked {
		s.Blocked = append(s.Blocked, w.pv.Name)
	}
	for _, a := range p.detach {
		s.Detach = append(s.Detach, a.Name)
	}
	for _, a := range p.attached {
		s.Attached = append(s.Attached, string(a.Name))
	}
	s.Again = p.again
	return s
}

func TestDecide(t *testing.T) {
	once, many := corev1.ReadWriteOnce, corev1.ReadWriteMany
	twin := pvOf(many)
	twin.Name = "a"
	both := &volume{pv: twin, others: []*storagev1.VolumeAttachment{attachmentOf("v", true)}}
	both.add(twin, nil)
	both.add(pvOf(once), nil)
	mine, elsewhere := attachmentOf("v", true), []*storagev1.VolumeAttachment{attachmentOf("v", true)}
	deleting := attachmentOf("v", true)
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	kubelets := attachmentOf("v", false)
	kubelets.Spec.Attacher = intree.ISCSI
	tainted := unhealthy("unique")
	tainted.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	for name, row := range map[string]struct {
		reason  string
		node    *corev1.Node
		wanted  *volume
		have    *storagev1.VolumeAttachment
		since   time.Duration // that no pod needs it
		noForce bool
		want    shown
	}{
		"Confirm":       {reason: "no attacher acts on it", node: healthy(), wanted: &volume{pv: pvOf(once)}, have: kubelets, want: shown{Confirm: []string{"of-v"}}},
		"Attach":        {reason: "a pod needs it", node: healthy(), wanted: &volume{pv: pvOf(once)}, want: shown{Attach: []string{"v"}}},
		"NoNode":        {reason: "the node does not exist", wanted: &volume{pv: pvOf(once)}},
		"Attached":      {reason: "the attacher is done", node: healthy(), wanted: &volume{pv: pvOf(once)}, have: mine, want: shown{Attached: []string{"unique"}}},
		"Attaching":     {reason: "the attacher is not done", node: healthy(), wanted: &volume{pv: pvOf(once)}, have: attachmentOf("v", false)},
		"MultiAttach":   {reason: "one node at a time", node: healthy(), wanted: &volume{pv: pvOf(once), others: elsewhere}, want: shown{Blocked: []string{"v"}}},
		"ManyNodes":     {reason: "its modes allow several nodes", node: healthy(), wanted: &volume{pv: pvOf(once, many), others: elsewhere}, want: shown{Attach: []string{"v"}}},
		"Twin":          {reason: "another persistent volume of the disk is attached", node: healthy(), wanted: &volume{pv: twin}, have: mine, want: shown{Attached: []string{"unique"}}},
		"Twins":         {reason: "one of two persistent volumes excludes other nodes", node: healthy(), wanted: both, want: shown{Blocked: []string{"v"}}},
		"Detach":        {reason: "no pod needs it", node: healthy(), have: mine, want: shown{Detach: []string{"of-v"}}},
		"InUse":         {reason: "the kubelet still uses it", node: healthy("unique"), have: mine, since: time.Hour, want: shown{Attached: []string{"unique"}}},
		"Unhealthy":     {reason: "the kubelet may still use it", node: unhealthy("unique"), have: mine, since: time.Minute, want: shown{Attached: []string{"unique"}, Again: 5 * time.Minute}},
		"Forced":        {reason: "six minutes have passed", node: unhealthy("unique"), have: mine, since: 6 * time.Minute, want: shown{Detach: []string{"of-v"}}},
		"NotForced":     {reason: "the flag forbids it", node: unhealthy("unique"), have: mine, since: time.Hour, noForce: true, want: shown{Attached: []string{"unique"}}},
		"OutOfService":  {reason: "the taint says that the node is down", node: tainted, have: mine, want: shown{Detach: []string{"of-v"}}},
		"NodeGone":      {reason: "the machine may still run", have: mine, since: time.Minute, want: shown{Attached: []string{"unique"}, Again: 5 * time.Minute}},
		"NodeLongGone":  {reason: "six minutes have passed", have: mine, since: 6 * time.Minute, want: shown{Detach: []string{"of-v"}}},
		"Detaching":     {reason: "its attachment is being deleted", node: healthy(), have: deleting},
		"NeededAgain":   {reason: "it is detached first", node: healthy(), wanted: &volume{pv: pvOf(once)}, have: deleting},
		"NeverAttached": {reason: "the attempt is given up", node: healthy(), have: attachmentOf("v", false), want: shown{Detach: []string{"of-v"}}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{node: row.node, wanted: map[corev1.UniqueVolumeName]*volume{}, names: map[string]corev1.UniqueVolumeName{"of-v": "unique"}, now: now, noForce: row.noForce}
			if row.wanted != nil {
				v.wanted["unique"] = row.wanted
			}
			if row.have != nil {
				v.attachments = []*storagev1.VolumeAttachment{row.have}
				v.unwanted = map[string]time.Time{"of-v": now.Add(-row.since)}
			}
			if diff := cmp.Diff(row.want, show(decide(v))); diff != "" {
				t.Errorf("%s:\n%s", row.reason, diff)
			}
		})
	}
}

// Several volumes keep the order of their names, so that a status does not change for
// nothing.
func TestTheListIsSorted(t *testing.T) {
	v := &view{node: healthy(), wanted: map[corev1.UniqueVolumeName]*volume{}, names: map[string]corev1.UniqueVolumeName{}}
	for _, name := range []string{"c", "a", "b"} {
		v.wanted[corev1.UniqueVolumeName(name)] = &volume{pv: pvOf()}
		v.attachments = append(v.attachments, attachmentOf(name, true))
		v.names["of-"+name] = corev1.UniqueVolumeName(name)
	}
	if got := show(decide(v)).Attached; !slices.IsSorted(got) || len(got) != 3 {
		t.Errorf("%v", got)
	}
}

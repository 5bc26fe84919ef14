package vm

import (
	"strings"
	"testing"
	"time"

	"podium/test/e2e/page"
)

// Timeouts on emulated processors.
const (
	initPatience  = 20 * time.Minute
	podPatience   = 8 * time.Minute // for a pod to become Ready, or to get an event
	cleanPatience = 2 * time.Minute // for the node to clean up after its last pod
	lostPatience  = 6 * time.Minute // and for that without the server
)

// remote is a cluster of one node, and a machine outside the cluster that serves volumes to it.
type remote struct {
	node, server *page.Operator
	machine      *machine // the server's
}

// TestRemoteVolumes uses volumes that another machine serves by NFS and iSCSI. Their data outlives
// pods and kubelets, the node keeps nothing of a volume after its last pod, and the loss of the
// server does not block the node.
func TestRemoteVolumes(t *testing.T) {
	begin := time.Now()
	l := setUp(t)
	m, node := l.place(t, 1, "node")
	server, operator := l.place(t, 2, "server")
	m.powerOn()
	server.powerOn()
	r := remote{node: node, server: operator, machine: server}
	l.prepare(t, []*machine{m}, []*page.Operator{node})
	server.booted(r.server)
	r.server.Run(serve)
	r.create(l)
	for _, part := range []struct {
		name string
		run  func(remote)
	}{
		{"NFS", remote.nfs},
		{"ISCSI", remote.iscsi},
		{"CHAP", remote.chap},
		{"Block", remote.block},
		{"KubeletKilled", remote.killed},
		{"DeletedWithoutKubelet", remote.orphaned},
		{"ServerLost", remote.lost}, // last: the iSCSI targets stay off
	} {
		t.Run(part.name, func(t *testing.T) {
			begin := time.Now()
			part.run(r.within(t))
			t.Logf("%s: %.0f s", part.name, time.Since(begin).Seconds())
		})
	}
	t.Logf("from no machine to the end: %.0f s", time.Since(begin).Seconds())
}

// within returns r with operators that report to a subtest.
func (r remote) within(t *testing.T) remote {
	node, server := *r.node, *r.server
	node.T, server.T = t, t
	r.node, r.server = &node, &server
	return r
}

// serve exports a directory by NFS and three disks by iSCSI, two of them without authentication. Disks
// have LUNs from 1: LUN 0 of tgt is its controller.
const serve = `mkdir -p /srv/nfs /srv/iscsi
echo '/srv/nfs 10.0.0.11(rw,sync,no_subtree_check,no_root_squash)' >/etc/exports
truncate -s 64M /srv/iscsi/open-1 /srv/iscsi/open-2 /srv/iscsi/chap-1
cat >/etc/tgt/conf.d/podium.conf <<'END'
<target ` + iqnOpen + `>
    backing-store /srv/iscsi/open-1
    backing-store /srv/iscsi/open-2
</target>
<target ` + iqnCHAP + `>
    backing-store /srv/iscsi/chap-1
    incominguser podium ` + password + `
</target>
END
systemctl start nfs-server tgt
exportfs -v
tgt-admin --show | grep -E '^Target|LUN:|Backing store path: /|Account|podium'`

// create makes the node a cluster, as an operator does.
func (r remote) create(l *lab) {
	r.node.Run("apt-get install -y /root/podium_test.deb")
	l.calm(r.node)
	r.node.Until(initPatience, "podium init --control-plane-placement shared")
	r.node.Until(podPatience, asAdmin+"podium wait node --all --for condition=Ready --timeout 60s")
	r.node.Until(initPatience, asAdmin+`podium rollout status deployment/cluster-dns -n kube-system --timeout 60s
		podium rollout status deployment/metrics-server -n kube-system --timeout 60s`) // they would delay the first pods
	r.node.Run("systemctl enable --now iscsid.socket") // as Debian's package does, but not the machines' disk
}

// apply creates objects from manifests.
func (r remote) apply(manifests ...string) {
	r.node.Helper()
	r.node.Until(time.Minute, asAdmin+"podium apply -f - <<'END'\n"+strings.Join(manifests, "")+"END")
}

// ready waits until pods are Ready.
func (r remote) ready(pods ...string) {
	r.node.Helper()
	r.node.Until(podPatience, asAdmin+"podium wait pod "+strings.Join(pods, " ")+" --for condition=Ready --timeout 60s || { podium why pod/"+pods[0]+"; exit 1; }")
}

// remove deletes pods, and waits until they are gone.
func (r remote) remove(pods ...string) {
	r.node.Helper()
	r.node.Run(asAdmin + "podium delete pod " + strings.Join(pods, " ") + " --timeout 5m")
}

// staged lists what the kubelet keeps of volumes that are staged: records, and mounts of file systems.
const staged = "find /var/lib/kubelet/plugins/kubernetes.io -name vol_data.json -o -name globalmount -o -path '*/iscsi/*.json'"

// clean waits until nothing of remote volumes is left on the node: no mount, session, disk, record of a
// target, or record of a volume.
func (r remote) clean() {
	r.node.Helper()
	r.node.Until(cleanPatience, `never "grep -E '^(/dev/sd|10\.0\.0\.12:)' /proc/mounts"
		code=0; iscsiadm -m session || code=$?; test $code = 21
		never "ls /dev/disk/by-path | grep iscsi"
		test -z "$(find /etc/iscsi/nodes /etc/iscsi/send_targets -type f)"
		test -z "$(`+staged+`)"`)
}

// nfs shares a directory between pods.
func (r remote) nfs() {
	r.apply(pod("nfs-writer", "echo from a pod >/data/greeting; sleep 7200", nfsVolume))
	r.ready("nfs-writer")
	r.server.Run("grep -x 'from a pod' /srv/nfs/greeting")

	r.apply(persistent("nfs-shared", "accessModes: [ReadWriteMany]", "mountOptions: [vers=4.2, soft], "+nfsVolume),
		pod("nfs-reader", sleep, claim("nfs-shared")),
		pod("nfs-readonly", sleep, "nfs: {server: 10.0.0.12, path: /srv/nfs, readOnly: true}"))
	r.ready("nfs-reader", "nfs-readonly")
	r.node.Run(asAdmin + `podium exec nfs-reader -- grep -x 'from a pod' /data/greeting
		podium exec nfs-reader -- grep -E '^10.0.0.12:/srv/nfs /data nfs4 rw,.*vers=4.2,.*soft,' /proc/mounts
		podium exec nfs-readonly -- grep -x 'from a pod' /data/greeting`)
	r.node.Refused(asAdmin+"podium exec nfs-readonly -- touch /data/forbidden", "Read-only file system")
	r.server.Run("echo from the server >/srv/nfs/greeting; test ! -e /srv/nfs/forbidden")
	r.node.Until(time.Minute, asAdmin+"podium exec nfs-reader -- grep -x 'from the server' /data/greeting")

	r.remove("nfs-writer", "nfs-reader", "nfs-readonly")
	r.clean()
	r.server.Run("grep -x 'from the server' /srv/nfs/greeting")
}

// iscsi formats a disk once, for the first of its pods.
func (r remote) iscsi() {
	const uuid = "blkid -p -o value -s UUID " + diskOpen1
	r.apply(pod("iscsi-first", "echo from a pod >/data/greeting; sync; sleep 7200", iscsiVolume))
	r.ready("iscsi-first")
	r.node.Run("iscsiadm -m session | grep " + iqnOpen + "; ls -l /dev/disk/by-path; grep ^/dev/sd /proc/mounts | grep ' ext4 rw,'")
	made := r.node.Run(uuid)
	r.remove("iscsi-first")
	r.clean()

	r.apply(pod("iscsi-second", sleep, iscsiVolume))
	r.ready("iscsi-second")
	r.node.Run(asAdmin + "podium exec iscsi-second -- grep -x 'from a pod' /data/greeting")
	if now := r.node.Run(uuid); now != made {
		r.node.Errorf("the file system is %s, not %s: it was made again", now, made)
	}
	r.remove("iscsi-second")
	r.clean()
}

// chap uses a disk with a password. With a wrong one the pod waits, until the Secret is right.
func (r remote) chap() {
	volume := persistent("chap", "accessModes: [ReadWriteOnce]", chapVolume)
	r.apply(secret(password), volume, pod("chap", "echo secret >/data/greeting; sync; sleep 7200", claim("chap")))
	r.ready("chap")
	r.node.Run("iscsiadm -m session | grep " + iqnCHAP)
	r.remove("chap")
	r.clean()

	r.apply(secret(wrongPassword), pod("chap-wrong", sleep, claim("chap")))
	const events = "podium get events --field-selector involvedObject.name=chap-wrong -o yaml"
	r.node.Until(podPatience, asAdmin+events+" | grep FailedMount")
	r.node.Run(asAdmin + events + ` | grep -E 'message|reason'
		podium get pod chap-wrong | grep ContainerCreating
		never "` + events + " | grep " + wrongPassword + `"
		never "podium get pod chap-wrong -o yaml | grep ` + wrongPassword + `"
		never "journalctl -u kubelet | grep -e ` + wrongPassword + " -e " + password + `"`)
	r.apply(secret(password))
	r.ready("chap-wrong")
	r.node.Run(asAdmin + "podium exec chap-wrong -- grep -x secret /data/greeting")
	r.remove("chap-wrong")
	r.clean()
	r.node.Run("never \"grep -r -e " + wrongPassword + " -e " + password + " /etc/iscsi /var/lib/kubelet\"")
}

// block gives a pod a disk of a target whose other disk is a file system of another pod. The session
// lasts as long as one of them.
func (r remote) block() {
	r.apply(persistent("block", "accessModes: [ReadWriteOnce], volumeMode: Block", "iscsi: {targetPortal: \"10.0.0.12:3260\", iqn: \""+iqnOpen+"\", lun: 2}"),
		blockPod, pod("block-neighbor", sleep, iscsiVolume))
	r.ready("block", "block-neighbor")
	r.node.Run(asAdmin + `podium exec block -- test -b /dev/disk
		podium exec block -- sh -ec 'echo from a pod | dd of=/dev/disk bs=512 conv=sync,fsync'`)
	r.server.Run("head -n 1 /srv/iscsi/open-2 | grep -a -x 'from a pod'")

	r.remove("block-neighbor")
	r.node.Until(cleanPatience, `never "grep ^/dev/sd /proc/mounts"
		`+staged+` | grep -c '/iscsi/.*json' | grep -x 1`)
	r.node.Run("iscsiadm -m session | grep " + iqnOpen + "\n" +
		asAdmin + "podium exec block -- sh -ec 'dd if=/dev/disk bs=512 count=1 | head -n 1' | grep -x 'from a pod'")
	r.remove("block")
	r.clean()
}

// beats is the script of pods that write to their volume once a second.
const beats = "while date >>/data/beats; do sleep 1; done"

// beating waits until each pod has written to its volume again. It returns the IDs of the containers.
func (r remote) beating(pods ...string) string {
	r.node.Helper()
	ids := asAdmin
	for _, p := range pods {
		r.node.Run(asAdmin + strings.ReplaceAll(`count() { podium exec POD -- sh -ec 'wc -l </data/beats'; }
			before=$(count); until [ "$(count)" -gt "$before" ]; do sleep 1; done`, "POD", p))
		ids += "podium get pod " + p + " -o 'jsonpath={.status.containerStatuses[0].containerID} '\n"
	}
	return r.node.Run(ids)
}

// killed kills the kubelet while pods use volumes, two of them of different targets at one portal. Then the
// pods of one target go before those of the other.
func (r remote) killed() {
	r.apply(secret(password), persistent("chap", "accessModes: [ReadWriteOnce]", chapVolume), pod("beats-chap", beats, claim("chap")),
		pod("beats-nfs", beats, claim("nfs-shared")), pod("beats-iscsi", beats, iscsiVolume))
	pods := []string{"beats-chap", "beats-nfs", "beats-iscsi"}
	r.ready(pods...)
	before := r.beating(pods...)
	r.node.Run(`old=$(systemctl show -P MainPID kubelet); kill -KILL $old
		until new=$(systemctl show -P MainPID kubelet); [ $new != 0 ] && [ $new != $old ]; do sleep 1; done`)
	r.node.Until(podPatience, "systemctl is-active kubelet")
	if now := r.beating(pods...); now != before {
		r.node.Errorf("the containers are %s, not %s: they did not go on", now, before)
	}
	r.remove("beats-chap")
	r.node.Until(cleanPatience, `never "iscsiadm -m session | grep `+iqnCHAP+`"
		iscsiadm -m session | grep `+iqnOpen)
	r.beating("beats-iscsi")
	r.remove("beats-nfs", "beats-iscsi")
	r.clean()
}

// orphaned deletes pods while no kubelet runs. The next one cleans up after them.
func (r remote) orphaned() {
	r.apply(pod("orphan-nfs", beats, nfsVolume), pod("orphan-iscsi", beats, iscsiVolume))
	r.ready("orphan-nfs", "orphan-iscsi")
	r.node.Run("systemctl stop kubelet\n" + asAdmin + `podium delete pod orphan-nfs orphan-iscsi --force --grace-period 0
		iscsiadm -m session | grep ` + iqnOpen + `
		systemctl start kubelet`)
	r.clean()
	r.apply(pod("after-orphans", sleep, iscsiVolume))
	r.ready("after-orphans")
	r.remove("after-orphans")
	r.clean()
}

// lost powers off the server while two pods use it: one writes, so that the kernel cannot kill it while
// its requests wait. The kubelet, the node and the other pods go on. The pod that does not write can be
// removed at once, the other one when the server is back.
func (r remote) lost() {
	const kubelet = "systemctl show -P MainPID -P NRestarts kubelet"
	r.apply(pod("hung", sleep, nfsVolume), pod("hung-writing", beats, nfsVolume))
	r.ready("hung", "hung-writing")
	r.beating("hung-writing")
	uid := strings.TrimSpace(r.node.Run(asAdmin + "podium get pod hung -o 'jsonpath={.metadata.uid}'"))
	before := r.node.Run(kubelet)
	r.machine.powerOff()
	r.node.Until(time.Minute, `dir=$(sed -n 's/^10\.0\.0\.12:[^ ]* \([^ ]*\) .*/\1/p' /proc/mounts | head -n 1); test -n "$dir"
		never "timeout -s KILL 5 touch $dir/beats"`)

	r.apply(pod("beside-hung", sleep, emptyDir), pod("never-mounted", sleep, "nfs: {server: 10.0.0.12, path: /srv/nfs/other}"))
	r.ready("beside-hung")
	time.Sleep(2 * time.Minute) // longer than the time after which a silent node is not Ready (see patient)
	r.node.Run(asAdmin + `podium get node node | grep ' Ready '
		podium get pod never-mounted | grep ContainerCreating
		podium delete pod never-mounted --timeout 4m
		podium delete pod hung hung-writing --force --grace-period 0`)
	r.apply(pod("after-hung", sleep, emptyDir))
	r.ready("after-hung")
	r.remove("beside-hung", "after-hung")
	r.node.Until(lostPatience, "test ! -e /var/lib/kubelet/pods/"+uid+`
		never "pgrep -af 'mount[.]nfs'"`)
	r.node.Run(asAdmin + "podium get node node | grep ' Ready '")
	if now := r.node.Run(kubelet); now != before {
		r.node.Errorf("the kubelet did not stay up: its PID and restarts were %q, and are %q", before, now)
	}

	r.machine.powerOn()
	r.machine.booted(r.server)
	r.server.Run("systemctl start nfs-server")
	r.node.Until(lostPatience, `never "grep '^10\.0\.0\.12:' /proc/mounts"
		never "pgrep -af '[/]data/beats'"`)
}

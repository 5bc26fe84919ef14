package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

// minimal is a spec with one container, as a user writes it.
func minimal() *corev1.PodSpec {
	return &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}}
}

func texts(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// nodeAffinity is an affinity with one required and one preferred term.
func nodeAffinity(required, preferred corev1.NodeSelectorRequirement) *corev1.Affinity {
	term := func(r corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{r}}
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term(required)}},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(preferred)}},
	}}
}

func TestValidate(t *testing.T) {
	const unsupported = "Forbidden: " + podspec.Unsupported
	for name, row := range map[string]struct {
		reason string
		change func(s *corev1.PodSpec, c *corev1.Container)
		want   []string
	}{
		"Minimal": {reason: "name and image are all a container needs", change: func(*corev1.PodSpec, *corev1.Container) {}},
		"NoContainers": {
			reason: "a pod is its containers",
			change: func(s *corev1.PodSpec, _ *corev1.Container) { s.Containers = nil },
			want:   []string{"spec.containers: Required value"},
		},
		"HostnameOverride": {
			reason: "it takes precedence over hostname and subdomain, which remain the pod's names in the DNS",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.HostnameOverride, s.Hostname, s.Subdomain = new("db-0.db.example.org"), "a", "b"
			},
		},
		"HostnameOverrideOfAHost": {
			reason: "the host's name stays; the FQDN is another name; 64 characters are the kernel's limit",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.HostnameOverride, s.HostNetwork, s.SetHostnameAsFQDN = new(strings.Repeat("a", 63)+".b"), true, new(true)
			},
			want: []string{
				`spec.hostnameOverride: Too long: may not be more than 64 bytes`,
				"spec.hostNetwork: Forbidden: may not be set when `hostnameOverride` is set",
				"spec.setHostnameAsFQDN: Forbidden: may not be set when `hostnameOverride` is set",
			},
		},
		"HostnameOverrideOfNoName": {
			reason: "an empty name is not a subdomain",
			change: func(s *corev1.PodSpec, _ *corev1.Container) { s.HostnameOverride = new("") },
			want:   []string{`spec.hostnameOverride: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		},
		"StopSignal": {
			reason: "sidecars run until they are stopped, too",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.OS = &corev1.PodOS{Name: corev1.Linux}
				c.Lifecycle = &corev1.Lifecycle{StopSignal: new(corev1.SIGUSR1)}
				sidecar := *c
				sidecar.Name, sidecar.RestartPolicy = "sidecar", new(corev1.ContainerRestartPolicyAlways)
				sidecar.Lifecycle = &corev1.Lifecycle{StopSignal: new(corev1.SIGRTMINPLUS15)}
				s.InitContainers = []corev1.Container{sidecar}
			},
		},
		"StopSignalOfNoSystem": {
			reason: "signals differ between operating systems",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{StopSignal: new(corev1.SIGUSR1)}
			},
			want: []string{"spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"},
		},
		"GroupsPolicy": {
			reason: "Merge and Strict are the policies",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicy("Loose"))}
			},
			want: []string{`spec.securityContext.supplementalGroupsPolicy: Unsupported value: "Loose": supported values: "Merge", "Strict"`},
		},
		"StrictGroups": {
			reason: "a kubelet whose runtime lacks the feature rejects the pod",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}
			},
		},
		"RecursiveReadOnly": {
			reason: "only a read-only mount that no other mount propagates into can be read-only all the way down",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data"}}
				mount := func(path string, ro bool, mode corev1.RecursiveReadOnlyMode, p *corev1.MountPropagationMode) corev1.VolumeMount {
					return corev1.VolumeMount{Name: "data", MountPath: path, ReadOnly: ro, RecursiveReadOnly: &mode, MountPropagation: p}
				}
				c.VolumeMounts = []corev1.VolumeMount{
					mount("/a", true, corev1.RecursiveReadOnlyEnabled, nil),
					mount("/b", true, corev1.RecursiveReadOnlyIfPossible, new(corev1.MountPropagationNone)),
					mount("/c", false, corev1.RecursiveReadOnlyDisabled, nil),
					mount("/d", false, corev1.RecursiveReadOnlyEnabled, nil),
					mount("/e", true, corev1.RecursiveReadOnlyIfPossible, new(corev1.MountPropagationHostToContainer)),
					mount("/f", true, "Sometimes", nil),
				}
			},
			want: []string{
				"spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
				"spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
				`spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Sometimes": supported values: "Disabled", "Enabled", "IfPossible"`,
			},
		},
		"NoImage": {
			reason: "the text that kubectl users know",
			change: func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "" },
			want:   []string{"spec.containers[0].image: Required value"},
		},
		"ImageWithSpaces": {
			reason: "no registry has such a name, and it is hard to see",
			change: func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = " web" },
			want:   []string{`spec.containers[0].image: Invalid value: " web": must not have leading or trailing whitespace`},
		},
		"TwoOfOneName": {
			reason: "status and logs find containers by name, over both lists",
			change: func(s *corev1.PodSpec, c *corev1.Container) { s.InitContainers = []corev1.Container{*c} },
			want:   []string{`spec.containers[0].name: Duplicate value: "c"`},
		},
		"BadRestartPolicy": {
			reason: "the values are listed in upstream's order",
			change: func(s *corev1.PodSpec, _ *corev1.Container) { s.RestartPolicy = "Sometimes" },
			want:   []string{`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`},
		},
		"RequestOverLimit": {
			reason: "it could never be given",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Resources = corev1.ResourceRequirements{Requests: quantities("cpu", "2"), Limits: quantities("cpu", "1")}
			},
			want: []string{`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		},
		"ExtendedResourceWithoutLimit": {
			reason: "a device cannot be promised twice",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Resources.Requests = quantities("example.com/gpu", "1")
			},
			want: []string{"spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"},
		},
		"HugePages": {
			reason: "with memory, whole pages, in a volume of them",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				c.Resources.Limits = quantities("hugepages-2Mi", "4Mi", "memory", "64Mi")
				s.Volumes = []corev1.Volume{
					{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePages}}},
					{Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-1Gi"}}},
				}
			},
		},
		"HugePagesAlone": {
			reason: "a process needs other memory, too; and pages are not divided",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				c.Resources.Limits = quantities("hugepages-2Mi", "3Mi")
				s.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-big"}}}}
			},
			want: []string{
				`spec.volumes[0].emptyDir.medium: Unsupported value: "HugePages-big": supported values: "", "HugePages", "HugePages-<size>", "Memory"`,
				`spec.containers[0].resources: Forbidden: HugePages require cpu or memory`,
				`spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi`,
			},
		},
		"ResourceOfNoKind": {
			reason: "a resource nobody knows is a typing error",
			change: func(_ *corev1.PodSpec, c *corev1.Container) { c.Resources.Limits = quantities("memroy", "1") },
			want:   []string{`spec.containers[0].resources.limits[memroy]: Invalid value: "memroy": must be a standard resource for containers`},
		},
		"MountOfNoVolume": {
			reason: "the pod could never start",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			},
			want: []string{`spec.containers[0].volumeMounts[0].name: Not found: "data"`},
		},
		"TwoMountsOnOnePath": {
			reason: "one would hide the other",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data"}}
				c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/data"}}
			},
			want: []string{`spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/data": must be unique`},
		},
		"SubPathOutOfTheVolume": {
			reason: "a pod must not reach its node's files",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data"}}
				c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "a/../../etc"}}
			},
			want: []string{`spec.containers[0].volumeMounts[0].subPath: Invalid value: "a/../../etc": must not contain '..'`},
		},
		"TwoVolumeTypes": {
			reason: "which of them would it be",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					EmptyDir: &corev1.EmptyDirVolumeSource{}, HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}}}
			},
			want: []string{"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"},
		},
		"VolumeOfAnotherType": {
			reason: "honest fields: no code mounts it",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					FC: &corev1.FCVolumeSource{}}}}
			},
			want: []string{"spec.volumes[0].fc: " + unsupported},
		},
		"NFS": {
			reason: "a mount needs a server and an absolute path",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Path: "x"}}}}
			},
			want: []string{"spec.volumes[0].nfs.server: Required value", `spec.volumes[0].nfs.path: Invalid value: "x": must be an absolute path`},
		},
		"ISCSI": {
			reason: "the names have formats, and CHAP needs a Secret",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
					IQN: "iqn.x", Lun: 256, InitiatorName: new("me"), SessionCHAPAuth: true}}}}
			},
			want: []string{
				"spec.volumes[0].iscsi.targetPortal: Required value", `spec.volumes[0].iscsi.iqn: Invalid value: "iqn.x": must be valid format`,
				"spec.volumes[0].iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
				`spec.volumes[0].iscsi.initiatorName: Invalid value: "me": must be valid format starting with iqn, eui, or naa`,
				"spec.volumes[0].iscsi.secretRef: Required value",
			},
		},
		"GoodISCSI": {
			reason: "a name may be an EUI-64 identifier",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
					TargetPortal: "10.0.0.1:3260", IQN: "eui.0123456789ABCDEF", InitiatorName: new("iqn.2001-04.com.example:me")}}}}
			},
		},
		"BlockDevice": {
			reason: "a claim may be a block device",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
				c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/disk"}}
			},
		},
		"BlockDeviceOfFiles": {
			reason: "only claims are block devices, once, at a path of their own",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "dir", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				c.VolumeMounts = []corev1.VolumeMount{{Name: "dir", MountPath: "/data"}}
				c.VolumeDevices = []corev1.VolumeDevice{{Name: "dir", DevicePath: "/data"}, {Name: "none", DevicePath: "/dev/../x"}}
			},
			want: []string{
				`spec.containers[0].volumeDevices[0].name: Invalid value: "dir": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`,
				`spec.containers[0].volumeDevices[0].name: Invalid value: "dir": must not already exist in volumeMounts`,
				`spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/data": must not already exist as a path in volumeMounts`,
				`spec.containers[0].volumeDevices[1].name: Not found: "none"`,
				`spec.containers[0].volumeDevices[1].devicePath: Invalid value: "/dev/../x": must not contain '..'`,
			},
		},
		"ProjectedPathTwice": {
			reason: "two sources would write one file",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				item := []corev1.KeyToPath{{Key: "k", Path: "f"}}
				s.Volumes = []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Items: item}},
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Items: item}},
					}}}}}
			},
			want: []string{`spec.volumes[0].projected.sources[1].configMap: Invalid value: "m": conflicting duplicate paths`},
		},
		"EnvFromTwoPlaces": {
			reason: "one variable has one value",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "A", Value: "b", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
			},
			want: []string{"spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"},
		},
		"EnvOfLabelByKey": {
			reason: "the downward API reads single labels",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}}}
			},
		},
		"EnvOfWholeLabels": {
			reason: "a map is no value of a variable",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}
			},
			want: []string{`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`},
		},
		"ProbeOfNothing": {
			reason: "a probe does something",
			change: func(_ *corev1.PodSpec, c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} },
			want:   []string{"spec.containers[0].livenessProbe: Required value: must specify a handler type"},
		},
		"LivenessNeedsTwo": {
			reason: "a container is alive as soon as it answers",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.LivenessProbe = &corev1.Probe{SuccessThreshold: 2, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
			},
			want: []string{"spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"},
		},
		"SleepLongerThanTheGracePeriod": {
			reason: "the kubelet would cut it short",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.TerminationGracePeriodSeconds = new(int64(15))
				c.Lifecycle = &corev1.Lifecycle{
					PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: -1}},
					PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 16}},
				}
			},
			want: []string{
				"spec.containers[0].lifecycle.postStart.sleep: Invalid value: -1: must be non-negative and less than terminationGracePeriodSeconds (15)",
				"spec.containers[0].lifecycle.preStop.sleep: Invalid value: 16: must be non-negative and less than terminationGracePeriodSeconds (15)",
			},
		},
		"SleepWithinTheGracePeriod": {
			reason: "upstream's text says less than, upstream's rule is not more than; zero is allowed",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{
					PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}},
					PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 30}},
				}
			},
		},
		"ResizePolicies": {
			reason: "one resource has one policy, and of values there are two",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				s.RestartPolicy = corev1.RestartPolicyNever
				c.ResizePolicy = []corev1.ContainerResizePolicy{
					{ResourceName: "cpu", RestartPolicy: corev1.NotRequired},
					{ResourceName: "cpu", RestartPolicy: corev1.NotRequired},
					{ResourceName: "disk", RestartPolicy: corev1.RestartContainer},
				}
			},
			want: []string{
				`spec.containers[0].resizePolicy[1]: Duplicate value: "cpu"`,
				`spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"`,
				"spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
			},
		},
		"PullSecretWithoutName": {
			reason: "it has no effect: a Warning is enough",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.ImagePullSecrets = []corev1.LocalObjectReference{{}}
			},
		},
		"NodeAffinityBoundOfNoInteger": {
			reason: "such a term matches no node, which is for the scheduler to find out",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Affinity = nodeAffinity(
					corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}},
					corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpLt, Values: []string{"few"}})
			},
		},
		"NodeAffinityTwoBounds": {
			reason: "which of them would it be",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				two := corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"1", "2"}}
				s.Affinity = nodeAffinity(two, two)
			},
			want: []string{
				"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
				"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
			},
		},
		"NodeAffinityValueOfNoLabel": {
			reason: "upstream looks at the values of what is required only",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				odd := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"-"}}
				s.Affinity = nodeAffinity(odd, odd)
			},
			want: []string{"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"},
		},
		"InitContainerWithProbe": {
			reason: "it is not there to be asked",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.InitContainers = []corev1.Container{{Name: "i", Image: "x", ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}}}
			},
			want: []string{"spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
		},
		"Sidecar": {
			reason: "it may have probes and hooks, which are validated",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.InitContainers = []corev1.Container{{Name: "i", Image: "x", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
					StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}}}}
			},
			want: []string{"spec.initContainers[0].startupProbe.exec.command: Required value"},
		},
		"RestartRules": {
			reason: "rules need a policy of the container, and exit codes",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: "Sleep"}}
			},
			want: []string{
				"spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
				`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Sleep": supported values: "Restart"`,
				"spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
			},
		},
		"Ephemeral": {
			reason: "an ephemeral container has no ports and no resources, and its target exists",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.EphemeralContainers = []corev1.EphemeralContainer{{TargetContainerName: "none", EphemeralContainerCommon: corev1.EphemeralContainerCommon{
					Name: "a", Image: "x", Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Lifecycle: &corev1.Lifecycle{}}}}
			},
			want: []string{
				`spec.ephemeralContainers[0].targetContainerName: Not found: "none"`,
				"spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
				"spec.ephemeralContainers[0].lifecycle: Forbidden: cannot be set for an Ephemeral Container",
			},
		},
		"HostPortTwice": {
			reason: "a node has each port once",
			change: func(s *corev1.PodSpec, c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
				second := *c
				second.Name = "d"
				s.Containers = append(s.Containers, second)
			},
			want: []string{`spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//8080"`},
		},
		"PodAffinityRequired": {
			reason: "required terms are validated as preferred ones are",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				term := []corev1.PodAffinityTerm{{TopologyKey: "zone"}, {TopologyKey: "zone", MatchLabelKeys: []string{"app"}}}
				s.Affinity = &corev1.Affinity{
					PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term},
					PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term},
				}
			},
			want: []string{
				"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
				"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
			},
		},
		"PodAffinityPreferred": {
			reason: "the scheduler scores by it",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}}}}}
			},
		},
		"PodAffinityPreferredBadly": {
			reason: "every field has its bounds",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
						{Weight: 0, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone", Namespaces: []string{"A"}}},
						{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone", MismatchLabelKeys: []string{"app"}}},
					}},
					PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
						{Weight: 500, PodAffinityTerm: corev1.PodAffinityTerm{}},
						{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
							TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}},
							MatchLabelKeys: []string{"app"}, MismatchLabelKeys: []string{"app"}}},
					}},
				}
			},
			want: []string{
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.namespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].podAffinityTerm.mismatchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 500: must be in the range 1-100",
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Required value: can not be empty",
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: \"\": name part must be non-empty",
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].podAffinityTerm.namespaceSelector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator",
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].podAffinityTerm.matchLabelKeys[0]: Invalid value: \"app\": exists in both matchLabelKeys and mismatchLabelKeys",
			},
		},
		"SchedulingGates": {
			reason: "names are qualified and unique, and a gated pod has no node",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.SchedulingGates, s.NodeName = []corev1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/a"}}, "n"
			},
			want: []string{
				"spec.schedulingGates[1]: Duplicate value: \"example.com/a\"",
				"spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
			},
		},
		"SpreadSoft": {
			reason: "the scheduler scores by it",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"pod-template-hash"},
					NodeAffinityPolicy: new(corev1.NodeInclusionPolicyHonor), NodeTaintsPolicy: new(corev1.NodeInclusionPolicyIgnore)}}
			},
		},
		"SpreadHard": {
			reason: "the scheduler enforces it",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: new(int32(2))}}
			},
		},
		"SpreadBadly": {
			reason: "every field has its bounds",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{MaxSkew: 0, WhenUnsatisfiable: corev1.ScheduleAnyway},
					{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway, MinDomains: new(int32(0)), MatchLabelKeys: []string{"app"}},
					{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway, NodeAffinityPolicy: new(corev1.NodeInclusionPolicy("Maybe"))},
					{MaxSkew: 1, TopologyKey: "host", WhenUnsatisfiable: "Perhaps", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "-"}}},
				}
			},
			want: []string{
				"spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
				"spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
				`spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, ScheduleAnyway}"`,
				"spec.topologySpreadConstraints[1].minDomains: Invalid value: 0: must be greater than zero",
				"spec.topologySpreadConstraints[1].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
				"spec.topologySpreadConstraints[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
				`spec.topologySpreadConstraints[2].nodeAffinityPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"`,
				`spec.topologySpreadConstraints[3].whenUnsatisfiable: Unsupported value: "Perhaps": supported values: "DoNotSchedule", "ScheduleAnyway"`,
				`spec.topologySpreadConstraints[3].labelSelector.matchLabels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			},
		},
		"PreemptionPolicy": {
			reason: "there are two",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.PreemptionPolicy = new(corev1.PreemptionPolicy("Always"))
			},
			want: []string{`spec.preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"`},
		},
		"PriorityClass": {
			reason: "admission looks it up for pods",
			change: func(s *corev1.PodSpec, _ *corev1.Container) { s.PriorityClassName = "gold" },
		},
		"RuntimeClass": {
			reason: "admission looks it up for pods",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.RuntimeClassName, s.Overhead = new("-"), corev1.ResourceList{"what": resource.MustParse("-1")}
			},
			want: []string{
				`spec.runtimeClassName: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`spec.overhead.limits[what]: Invalid value: "what": must be a standard resource for containers`,
				`spec.overhead.limits[what]: Invalid value: "-1": must be greater than or equal to 0`,
			},
		},
		"MalformedSysctls": {
			reason: "each bad name is named (sysctl-invalid-rejected)",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "foo-"}, {Name: "kernel.shmmax"}, {Name: "bar.."}}}
			},
			want: []string{
				`spec.securityContext.sysctls[0].name: Invalid value: "foo-": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`,
				`spec.securityContext.sysctls[2].name: Invalid value: "bar..": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`,
			},
		},
		"DNSNoneWithoutConfig": {
			reason: "the pod would have no resolver at all",
			change: func(s *corev1.PodSpec, _ *corev1.Container) { s.DNSPolicy = corev1.DNSNone },
			want:   []string{"spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"},
		},
		"TolerationSecondsOfNoSchedule": {
			reason: "only eviction takes time",
			change: func(s *corev1.PodSpec, _ *corev1.Container) {
				s.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule, TolerationSeconds: new(int64(1))}}
			},
			want: []string{"spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"},
		},
		"NoEscalationYetPrivileged": {
			reason: "the two contradict each other",
			change: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), AllowPrivilegeEscalation: new(false)}
			},
			want: []string{"spec.containers[0].securityContext: Invalid value: {\"privileged\":true,\"allowPrivilegeEscalation\":false}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := minimal()
			row.change(spec, &spec.Containers[0])
			podspec.Default(spec)
			if diff := cmp.Diff(row.want, texts(podspec.Validate(spec, field.NewPath("spec")))); diff != "" {
				t.Errorf("%s\n%s", row.reason, diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	spec := minimal()
	spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}, {Name: "a"}, {}}
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
	want := []string{
		`spec.imagePullSecrets[1].name: duplicate name "a"`,
		`spec.imagePullSecrets[2].name: invalid empty name ""`,
		`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`,
	}
	if diff := cmp.Diff(want, podspec.Warnings(spec, field.NewPath("spec"))); diff != "" {
		t.Error(diff)
	}
}

func TestValidateUpdate(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		old    func(*corev1.PodSpec)
		change func(*corev1.PodSpec)
		want   []string // beginnings
	}{
		"Image": {
			reason: "kubectl set image on a pod",
			change: func(s *corev1.PodSpec) { s.Containers[0].Image = "web:2" },
		},
		"GateRemoved": {
			reason: "a gate that is removed lets the pod be scheduled",
			old:    func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}} },
			change: func(s *corev1.PodSpec) { s.SchedulingGates = s.SchedulingGates[1:] },
		},
		"GateAdded": {
			reason: "the scheduler may have bound the pod",
			old:    func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}} },
			change: func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "b"}} },
			want:   []string{"spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'"},
		},
		"GatedNarrowed": {
			reason: "a gated pod may be restricted to fewer nodes",
			old: func(s *corev1.PodSpec) {
				s.SchedulingGates, s.NodeSelector = []corev1.PodSchedulingGate{{Name: "a"}}, map[string]string{"a": "b"}
			},
			change: func(s *corev1.PodSpec) {
				s.NodeSelector = map[string]string{"a": "b", "c": "d"}
				s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}}}}}}
			},
		},
		"GatedWidened": {
			reason: "but not lift a restriction",
			old: func(s *corev1.PodSpec) {
				s.SchedulingGates, s.NodeSelector = []corev1.PodSchedulingGate{{Name: "a"}}, map[string]string{"a": "b"}
			},
			change: func(s *corev1.PodSpec) { s.NodeSelector = nil },
			want:   []string{"spec.nodeSelector: Invalid value: null: only additions to spec.nodeSelector are allowed (no mutations or deletions)"},
		},
		"FirstDeadline": {
			reason: "pod-active-deadline-update",
			change: func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(5)) },
		},
		"LaterDeadline": {
			reason: "a deadline can only come nearer",
			old:    func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(5)) },
			change: func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(6)) },
			want:   []string{"spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"},
		},
		"NoDeadlineAnyMore": {
			reason: "nor can it go away",
			old:    func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(5)) },
			change: func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = nil },
			want:   []string{"spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"},
		},
		"AddedToleration": {
			reason: "what is tolerated can grow",
			change: func(s *corev1.PodSpec) {
				s.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
			},
		},
		"RemovedToleration": {
			reason: "a running pod may depend on it",
			old: func(s *corev1.PodSpec) {
				s.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
			},
			change: func(s *corev1.PodSpec) { s.Tolerations = nil },
			want:   []string{"spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
		},
		"Command": {
			reason: "a container is what it was started as; the message says where it differs",
			change: func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"sh"} },
			want: []string{"spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n" +
				"  containers[0].command:\n- \tnull\n+ \t[\"sh\"]\n"},
		},
		"AnotherContainer": {
			reason: "upstream's text",
			change: func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "d"}) },
			want:   []string{"spec.containers: Forbidden: pod updates may not add or remove containers"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := minimal()
			if row.old != nil {
				row.old(old)
			}
			podspec.Default(old)
			changed := old.DeepCopy()
			row.change(changed)
			if diff := cmp.Diff(row.want, texts(podspec.ValidateUpdate(changed, old, field.NewPath("spec")))); diff != "" {
				t.Errorf("%s\n%s", row.reason, diff)
			}
		})
	}
}

func TestQOSClass(t *testing.T) {
	for name, row := range map[string]struct {
		requests, limits corev1.ResourceList
		want             corev1.PodQOSClass
	}{
		"Nothing":     {nil, nil, corev1.PodQOSBestEffort},
		"Equal":       {quantities("cpu", "1", "memory", "1Gi"), quantities("cpu", "1", "memory", "1Gi"), corev1.PodQOSGuaranteed},
		"LimitsOnly":  {nil, quantities("cpu", "1", "memory", "1Gi"), corev1.PodQOSGuaranteed},
		"OneLimit":    {nil, quantities("cpu", "1"), corev1.PodQOSBurstable},
		"Less":        {quantities("cpu", "500m", "memory", "1Gi"), quantities("cpu", "1", "memory", "1Gi"), corev1.PodQOSBurstable},
		"OtherThings": {quantities("ephemeral-storage", "1Gi"), nil, corev1.PodQOSBestEffort},
	} {
		spec := minimal()
		spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: row.requests, Limits: row.limits}
		if got := podspec.QOSClass(spec); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

func TestDefault(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		HostNetwork:              true,
		DeprecatedServiceAccount: "robot",
		Volumes: []corev1.Volume{{Name: "v"}, {Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}}}},
		Containers: []corev1.Container{{
			Name: "c", Image: "web",
			Ports:         []corev1.ContainerPort{{ContainerPort: 80}},
			Resources:     corev1.ResourceRequirements{Limits: quantities("cpu", "1.0001", "memory", "1Gi"), Requests: quantities("cpu", "1m")},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
		}},
	}}
	podspec.DefaultPod(pod)
	want := &corev1.PodSpec{
		HostNetwork: true, DeprecatedServiceAccount: "robot", ServiceAccountName: "robot",
		DNSPolicy: corev1.DNSClusterFirst, RestartPolicy: corev1.RestartPolicyAlways, SchedulerName: "default-scheduler",
		TerminationGracePeriodSeconds: new(int64(30)), SecurityContext: &corev1.PodSecurityContext{}, EnableServiceLinks: new(true),
		Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: new(int32(0o644)),
				Sources:     []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t", ExpirationSeconds: new(int64(3600))}}}}}}},
		Containers: []corev1.Container{{
			Name: "c", Image: "web", ImagePullPolicy: corev1.PullAlways,
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{
				Limits:   quantities("cpu", "1001m", "memory", "1Gi"),
				Requests: quantities("cpu", "1m", "memory", "1Gi")},
			LivenessProbe: &corev1.Probe{
				ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: corev1.URISchemeHTTP}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3},
		}},
	}
	if diff := cmp.Diff(want, &pod.Spec); diff != "" {
		t.Error(diff)
	}
	again := pod.DeepCopy()
	podspec.DefaultPod(again)
	if diff := cmp.Diff(pod, again); diff != "" {
		t.Errorf("a second time changes something:\n%s", diff)
	}
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"web":                                   corev1.PullAlways,
		"web:latest":                            corev1.PullAlways,
		"host:5000/web":                         corev1.PullAlways,
		"web:1":                                 corev1.PullIfNotPresent,
		"host:5000/web:1":                       corev1.PullIfNotPresent,
		"web@sha256:" + strings.Repeat("a", 64): corev1.PullIfNotPresent,
		"":                                      corev1.PullIfNotPresent,
	} {
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}
		podspec.Default(spec)
		if got := spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

// The cost of defaulting and validation for every pod that is created.
func BenchmarkDefaultAndValidate(b *testing.B) {
	spec := minimal()
	spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	spec.Containers[0].Resources.Limits = quantities("cpu", "1", "memory", "1Gi")
	path := field.NewPath("spec")
	b.ReportAllocs()
	for b.Loop() {
		pod := &corev1.Pod{Spec: *spec.DeepCopy()}
		podspec.DefaultPod(pod)
		if errs := podspec.Validate(&pod.Spec, path); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

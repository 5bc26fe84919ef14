package registry_test

import (
	"os"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// samples are the objects of testdata/kinds.yaml, by kind.
type samples struct {
	*rig
	json map[string][]byte
}

func readSamples(t testing.TB) *samples {
	t.Helper()
	s := &samples{newRig(t, "10.96.0.0/16", somePorts), map[string][]byte{}}
	data, err := os.ReadFile("testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, gvk, err := s.scheme.Decode(object, scheme.JSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.json[gvk.Kind] = object
	}
	return s
}

// make returns a sample with its defaults, changed by a merge patch in YAML.
func (s *samples) make(t *testing.T, kind, patch string) (*registry.Kind, scheme.Object) {
	t.Helper()
	if s.json[kind] == nil {
		t.Fatalf("no sample of %s", kind)
	}
	change, err := yaml.YAMLToJSON([]byte(patch))
	if err == nil && patch != "" {
		change, err = jsonpatch.MergePatch(s.json[kind], change)
	} else {
		change = s.json[kind]
	}
	if err != nil {
		t.Fatal(err)
	}
	obj, gvk, err := s.scheme.Decode(change, scheme.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := s.kinds[s.scheme.ByKind(*gvk).Resource]
	if k.Default != nil {
		k.Default(obj.(scheme.Object))
	}
	return k, obj.(scheme.Object)
}

// judge validates new as a create, or as an update of old, of the object or its
// status.
func (s *samples) judge(t *testing.T, k *registry.Kind, sub string, new, old scheme.Object) field.ErrorList {
	t.Helper()
	if sub != "" {
		part := subresource(t, k, sub)
		if err := part.PreparePart(t.Context(), new, old); err != nil {
			t.Fatal(err)
		}
		return part.ValidatePart(new, old)
	}
	if k.Prepare != nil {
		if err := k.Prepare(t.Context(), holding(nil), new, old); err != nil {
			t.Fatal(err)
		}
	}
	var errs field.ErrorList
	if k.ValidateName != nil {
		for _, text := range k.ValidateName(new.GetName(), false) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), new.GetName(), text))
		}
	}
	return append(errs, k.Validate(new, old)...)
}

// The samples are valid, as a new object and as an update of themselves, and are
// printed with a cell a column.
func TestSamplesAreValid(t *testing.T) {
	s := readSamples(t)
	for kind := range s.json {
		k, obj := s.make(t, kind, "")
		for _, old := range []scheme.Object{nil, obj.DeepCopyObject().(scheme.Object)} {
			if errs := s.judge(t, k, "", obj.DeepCopyObject().(scheme.Object), old); len(errs) > 0 {
				t.Errorf("%s: %v", kind, errs)
			}
		}
		if cells := k.Row(obj, today); len(cells) != len(k.Columns) {
			t.Errorf("%s: %d cells, %d columns", kind, len(cells), len(k.Columns))
		}
		again := obj.DeepCopyObject().(scheme.Object)
		if k.Default != nil {
			k.Default(again)
		}
		if diff := cmp.Diff(obj, again); diff != "" {
			t.Errorf("%s: the defaults are not idempotent\n%s", kind, diff)
		}
	}
}

type judged struct {
	name  string
	old   string // the patch that makes the stored object
	patch string
	sub   string
	want  []string
}

// each runs the rows of a kind: those whose name begins with "Update" or that have a
// subresource as updates of the sample, the others as creates.
func (s *samples) each(t *testing.T, kind string, rows []judged) {
	t.Run(kind, func(t *testing.T) {
		for _, row := range rows {
			var old scheme.Object
			k, obj := s.make(t, kind, row.patch)
			if row.sub != "" || strings.HasPrefix(row.name, "Update") {
				_, old = s.make(t, kind, row.old)
			}
			var got []string
			for _, text := range texts(s.judge(t, k, row.sub, obj, old)) {
				text, _, _ = strings.Cut(text, "\n")
				text, _, _ = strings.Cut(text, ": a lowercase RFC 1123")
				got = append(got, text)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s\n%s", row.name, diff)
			}
		}
	})
}

func TestNetworkKinds(t *testing.T) {
	s := readSamples(t)
	s.each(t, "Ingress", []judged{
		{name: "Empty", patch: `{spec: {rules: null}}`, want: []string{"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"}},
		{name: "Host", patch: `{spec: {rules: [{host: 10.0.0.1}, {host: "*.*.com"}]}}`, want: []string{
			`spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`,
			`spec.rules[1].host: Invalid value: "*.*.com": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{name: "Paths", patch: `{spec: {rules: [{http: {paths: [{path: a//b/.., pathType: Exact, backend: {}}, {backend: {}}, {pathType: Some, backend: {service: {name: s, port: {}}}}]}}]}}`, want: []string{
			`spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": must be an absolute path`,
			`spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": must not contain '//'`,
			`spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": cannot end with '/..'`,
			`spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required`,
			`spec.rules[0].http.paths[1].pathType: Required value: pathType must be specified`,
			`spec.rules[0].http.paths[2].pathType: Unsupported value: "Some": supported values: "Exact", "ImplementationSpecific", "Prefix"`,
			`spec.rules[0].http.paths[2].backend: Required value: port name or number is required`}},
		{name: "Class", patch: `{metadata: {annotations: {kubernetes.io/ingress.class: a}}, spec: {ingressClassName: b}}`, want: []string{
			"annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified"}},
		{name: "Status", sub: "status", patch: `{status: {loadBalancer: {ingress: [{ip: x}, {hostname: 10.0.0.1}]}}}`, want: []string{
			`status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`}},
	})
	s.each(t, "IngressClass", []judged{
		{name: "Controller", patch: `{spec: {controller: x}}`, want: []string{`spec.controller: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")`}},
		{name: "Scope", patch: `{spec: {parameters: {scope: Namespace}}}`, want: []string{"spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"}},
		{name: "UpdateController", patch: `{spec: {controller: example.com/d}}`, want: []string{`spec.controller: Invalid value: "example.com/d": field is immutable`}},
	})
	s.each(t, "NetworkPolicy", []judged{
		{name: "Peers", patch: `{spec: {ingress: [{from: [{}, {podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}}`, want: []string{
			`spec.ingress[0].from[0]: Required value: must specify a peer`,
			`spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer`}},
		{name: "Block", patch: `{spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}}`, want: []string{
			"spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"}},
		{name: "Ports", patch: `{spec: {egress: [{ports: [{port: 80, endPort: 8}, {port: http, endPort: 8}, {endPort: 8, protocol: ICMP}]}]}}`, want: []string{
			"spec.egress[0].ports[0].endPort: Invalid value: 8: must be greater than or equal to `port`",
			"spec.egress[0].ports[1].endPort: Invalid value: 8: may not be specified when `port` is non-numeric",
			`spec.egress[0].ports[2].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`,
			"spec.egress[0].ports[2].endPort: Invalid value: 8: may not be specified when `port` is not specified"}},
	})
	s.each(t, "ServiceCIDR", []judged{
		{name: "Families", patch: `{spec: {cidrs: [10.1.0.0/16, 10.2.0.0/16]}}`, want: []string{
			`spec.cidrs: Invalid value: ["10.1.0.0/16","10.2.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`}},
		{name: "UpdateDualStack", patch: `{spec: {cidrs: [10.1.0.0/16, "fd00::/64"]}}`},
		{name: "UpdateRange", patch: `{spec: {cidrs: [10.2.0.0/16]}}`, want: []string{`spec.cidrs[0]: Invalid value: "10.2.0.0/16": field is immutable`}},
	})
	s.each(t, "IPAddress", []judged{
		{name: "Name", patch: `{metadata: {name: 010.0.0.1}}`, want: []string{`metadata.name: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{name: "Parent", patch: `{spec: {parentRef: {resource: "", name: a/b}}}`, want: []string{
			"spec.parentRef.resource: Required value", `spec.parentRef.name: Invalid value: "a/b": may not contain '/'`}},
		{name: "NoParent", patch: `{spec: null}`, want: []string{"spec.parentRef: Required value"}},
	})
}

func TestStorageKinds(t *testing.T) {
	s := readSamples(t)
	s.each(t, "PersistentVolume", []judged{
		{name: "Nothing", patch: `{spec: null}`, want: []string{
			"spec.accessModes: Required value", "spec.capacity: Required value",
			`spec.capacity: Unsupported value: null: supported values: "storage"`, "spec: Required value: must specify a volume type"}},
		{name: "Modes", patch: `{spec: {accessModes: [ReadWriteOncePod, ReadWriteMany], volumeMode: Tape}}`, want: []string{
			"spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
			`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`}},
		{name: "Sources", patch: `{spec: {csi: null, local: {path: a/../b}, nfs: {server: s, path: p}}}`, want: []string{
			`spec.nfs.path: Invalid value: "p": must be an absolute path`, "spec.local: Forbidden: may not specify more than 1 volume type"}},
		{name: "Local", patch: `{spec: {csi: null, local: {path: /a/../b}}}`, want: []string{
			`spec.local.path: Invalid value: "/a/../b": must not contain '..'`, "spec.nodeAffinity: Required value: Local volume requires node affinity"}},
		{name: "ISCSI", patch: `{metadata: {name: n23456789-123456789-123456789-123456789-123456789-1234}, spec: {csi: null, iscsi: {targetPortal: "10.0.0.1:3260", lun: -1, initiatorName: "iqn.2001-04.com.example:a", secretRef: {}}}}`, want: []string{
			"spec.iscsi.iqn: Required value", "spec.iscsi.lun: Invalid value: -1: must be between 0 and 255, inclusive", "spec.iscsi.secretRef.name: Required value",
			`spec.iscsi.targetportal: Invalid value: "10.0.0.1:3260": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.`}},
		{name: "OtherSource", patch: `{spec: {csi: null, flexVolume: {driver: d}}}`, want: []string{"spec.flexVolume: Forbidden: Podium does not support this field"}},
		{name: "Secret", patch: `{spec: {csi: {nodePublishSecretRef: {name: m}}}}`, want: []string{"spec.csi.nodePublishSecretRef.namespace: Required value"}},
		{name: "UpdateSource", patch: `{spec: {csi: {volumeHandle: i}}}`, want: []string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"}},
		{name: "UpdateExpandSecret", patch: `{spec: {csi: {controllerExpandSecretRef: {name: m, namespace: m}}}}`},
	})
	bound := `{status: {phase: Bound, capacity: {storage: 1Gi}}, spec: {volumeName: v}}`
	s.each(t, "PersistentVolumeClaim", []judged{
		{name: "Nothing", patch: `{spec: null}`, want: []string{
			"spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value"}},
		{name: "Sources", patch: `{spec: {dataSourceRef: {kind: Pod, name: p}}}`, want: []string{
			`spec.dataSource: Invalid value: "Pod": must be 'PersistentVolumeClaim' when referencing the default apiGroup`,
			`spec.dataSourceRef: Invalid value: "Pod": must be 'PersistentVolumeClaim' when referencing the default apiGroup`}},
		{name: "OtherNamespace", patch: `{spec: {dataSourceRef: {kind: PersistentVolumeClaim, name: p, namespace: m}}}`, want: []string{
			"spec.dataSourceRef.namespace: Forbidden: Podium does not support this field"}},
		{name: "UpdateBind", patch: `{spec: {volumeName: v}}`},
		{name: "UpdateClass", patch: `{spec: {storageClassName: c}}`},
		{name: "UpdatePendingSize", patch: `{spec: {resources: {requests: {storage: 2Gi}}}}`, want: []string{
			"spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"}},
		{name: "UpdateGrow", old: bound, patch: `{spec: {volumeName: v, resources: {requests: {storage: 2Gi}}}}`},
		{name: "UpdateShrink", old: bound, patch: `{spec: {volumeName: v, resources: {requests: {storage: 1Mi}}}}`, want: []string{
			"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"}},
		{name: "UpdateVolume", old: bound, patch: `{spec: {volumeName: w}}`, want: []string{
			"spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"}},
		{name: "Status", sub: "status", patch: `{status: {capacity: {storage: -1}, allocatedResourceStatuses: {storage: Sometimes}}}`, want: []string{
			"status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
			`status.allocatedResourceStatus: Unsupported value: "storage": supported values: "ControllerResizeInfeasible", "ControllerResizeInProgress", "NodeResizeInfeasible", "NodeResizeInProgress", "NodeResizePending"`}},
	})
	s.each(t, "StorageClass", []judged{
		{name: "Values", patch: `{provisioner: "", reclaimPolicy: Recycle, volumeBindingMode: Never, parameters: {"": a}}`, want: []string{
			"provisioner: Required value", `parameters: Invalid value: "": field can not be empty.`,
			`reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`,
			`volumeBindingMode: Unsupported value: "Never": supported values: "Immediate", "WaitForFirstConsumer"`}},
		{name: "Topologies", patch: `{allowedTopologies: [{matchLabelExpressions: [{key: a, values: [b, b]}]}, {matchLabelExpressions: [{key: a}]}]}`, want: []string{
			`allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b"`,
			`allowedTopologies[1].matchLabelExpressions[0].values: Required value`}},
		{name: "UpdateAll", patch: `{provisioner: e.example.com, reclaimPolicy: Retain, parameters: {a: b}, allowVolumeExpansion: true}`, want: []string{
			"parameters: Forbidden: updates to parameters are forbidden.", "provisioner: Forbidden: updates to provisioner are forbidden.",
			"reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden."}},
	})
	s.each(t, "CSIDriver", []judged{
		{name: "Values", patch: `{spec: {fsGroupPolicy: Some, volumeLifecycleModes: [Some], tokenRequests: [{audience: a, expirationSeconds: 5}, {audience: a}]}}`, want: []string{
			`spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", "ReadWriteOnceWithFSType"`,
			`spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes`,
			`spec.tokenRequests[1].audience: Duplicate value: "a"`,
			`spec.volumeLifecycleModes: Unsupported value: "Some": supported values: "Persistent", "Ephemeral"`}},
		{name: "UpdateAttach", patch: `{spec: {attachRequired: false}}`, want: []string{`spec.attachedRequired: Invalid value: false: field is immutable`}},
	})
	s.each(t, "CSINode", []judged{
		{name: "Drivers", patch: `{spec: {drivers: [{name: d, nodeID: ""}, {name: d, nodeID: i, allocatable: {count: -1}}]}}`, want: []string{
			"spec.drivers[0].nodeID: Required value",
			"spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0", `spec.drivers[1].name: Duplicate value: "d"`}},
		{name: "UpdateLimit", patch: `{spec: {drivers: [{name: d.example.com, nodeID: i, topologyKeys: [example.com/zone], allocatable: {count: 5}}]}}`},
		{name: "UpdateID", patch: `{spec: {drivers: [{name: d.example.com, nodeID: j, topologyKeys: [example.com/zone]}]}}`, want: []string{
			`spec.drivers: Invalid value: {"name":"d.example.com","nodeID":"j","topologyKeys":["example.com/zone"]}: field is immutable`}},
	})
	s.each(t, "CSIStorageCapacity", []judged{
		{name: "Values", patch: `{storageClassName: "-", capacity: -1}`, want: []string{
			`storageClassName: Invalid value: "-"`, `capacity: Invalid value: "-1": must be greater than or equal to 0`}},
		{name: "UpdateClass", patch: `{storageClassName: d}`, want: []string{`storageClassName: Invalid value: "d": field is immutable`}},
	})
	s.each(t, "VolumeAttachment", []judged{
		{name: "NoSource", patch: `{spec: {source: null}}`, want: []string{"spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"}},
		{name: "Inline", patch: `{spec: {source: {persistentVolumeName: null, inlineVolumeSpec: {storageClassName: c, accessModes: [ReadWriteOnce], nfs: {server: s, path: /p}}}}}`, want: []string{
			"spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
			"spec.source.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes"}},
		{name: "Status", sub: "status", patch: `{status: {attached: true, attachError: {errorCode: -1}}}`, want: []string{
			"status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"}},
	})
	s.each(t, "VolumeAttributesClass", []judged{
		{name: "Values", patch: `{driverName: "a b", parameters: null}`, want: []string{
			`driverName: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			"parameters: Required value: must contain at least one key/value pair"}},
		{name: "UpdateParameters", patch: `{parameters: {iops: "6"}}`, want: []string{"parameters: Forbidden: updates to parameters are forbidden."}},
	})
}

func TestClassesAndFlows(t *testing.T) {
	s := readSamples(t)
	s.each(t, "RuntimeClass", []judged{
		{name: "Values", patch: `{handler: a_b, overhead: {podFixed: {cpu: -1}}}`, want: []string{
			`handler: Invalid value: "a_b"`, `overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		{name: "UpdateHandler", patch: `{handler: i}`, want: []string{`handler: Invalid value: "i": field is immutable`}},
	})
	s.each(t, "PriorityClass", []judged{
		{name: "TooHigh", patch: `{value: 1000000001}`, want: []string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
		{name: "System", patch: `{metadata: {name: system-mine}}`, want: []string{
			"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"}},
		{name: "Policy", patch: `{preemptionPolicy: Always}`, want: []string{`preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"`}},
		{name: "UpdateValue", patch: `{value: 6, preemptionPolicy: Never}`, want: []string{
			"value: Forbidden: may not be changed in an update.", `preemptionPolicy: Invalid value: "Never": field is immutable`}},
		{name: "UpdateDescription", patch: `{description: d}`},
	})
	s.each(t, "FlowSchema", []judged{
		{name: "Values", patch: `{spec: {matchingPrecedence: 1, distinguisherMethod: {type: ByMood}, priorityLevelConfiguration: {name: ""}}}`, want: []string{
			`spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1`,
			`spec.distinguisherMethod.type: Unsupported value: "ByMood": supported values: "ByNamespace", "ByUser"`,
			`spec.priorityLevelConfiguration.name: Required value: must reference a priority level`}},
		{name: "Rules", patch: `{spec: {rules: [{subjects: [{kind: Group, user: {name: u}}], nonResourceRules: [{verbs: [eat], nonResourceURLs: [a, "/*/b"]}]}]}}`, want: []string{
			"spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
			"spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'",
			`spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["eat"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/*/b": wildcard can only do suffix matching`}},
		{name: "Status", sub: "status", patch: `{status: {conditions: [{type: a, status: "True"}, {type: a}]}}`, want: []string{`status.conditions[1].type: Duplicate value: "a"`}},
	})
	s.each(t, "PriorityLevelConfiguration", []judged{
		{name: "Exempt", patch: `{spec: {type: Exempt}}`, want: []string{
			`spec.type: Invalid value: "Exempt": type must be 'Exempt' if and only if name is 'exempt'`, "spec.limited: Forbidden: must be nil if the type is not Limited"}},
		{name: "Shares", patch: `{spec: {limited: {nominalConcurrencyShares: -1, lendablePercent: 101, borrowingLimitPercent: -1}}}`, want: []string{
			"spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
			"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
			"spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"}},
		{name: "Hand", patch: `{spec: {limited: {limitResponse: {queuing: {queues: 512, handSize: 7}}}}}`, want: []string{
			"spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 512 and handSize 7 should not be greater than 60"}},
	})
}

func TestDeviceKinds(t *testing.T) {
	s := readSamples(t)
	s.each(t, "DeviceClass", []judged{
		{name: "Values", patch: `{spec: {selectors: [{}], config: [{}, {opaque: {driver: d, parameters: [1]}}], extendedResourceName: cpu}}`, want: []string{
			"spec.selectors[0].cel: Required value", "spec.config[0].opaque: Required value",
			`spec.config[1].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`,
			`spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name`}},
	})
	s.each(t, "DeviceTaintRule", []judged{
		{name: "Selector", patch: `{spec: {deviceSelector: {driver: "d d", pool: "", device: D_}}}`, want: []string{
			`spec.deviceSelector.driver: Invalid value: "d d"`,
			"spec.deviceSelector.pool: Required value",
			`spec.deviceSelector.device: Invalid value: "D_"`}},
		{name: "Taint", patch: `{spec: {taint: {value: "-", effect: Sometimes}}}`, want: []string{
			`spec.taint.value: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			`spec.taint.effect: Unsupported value: "Sometimes": supported values: "NoExecute", "NoSchedule", "None"`}},
		{name: "Everything", patch: `{spec: {deviceSelector: {driver: null}}}`},
		{name: "StatusConditions", sub: "status", patch: `{status: {conditions: [{type: A, status: "True", message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`,
			want: []string{"status.conditions[0].reason: Required value"}},
	})
	s.each(t, "StorageVersionMigration", []judged{
		{name: "None", patch: `{spec: {resource: {resource: ""}}}`, want: []string{"spec.resource.resource: Required value: resource is required to be set"}},
		{name: "UpdateResource", patch: `{spec: {resource: {resource: pods}}}`, want: []string{
			`spec: Invalid value: {"resource":{"group":"apps","resource":"pods"}}: field is immutable`}},
		{name: "StatusVersion", sub: "status", old: `{status: {resourceVersion: "5"}}`, patch: `{status: {resourceVersion: "6"}}`, want: []string{
			`status.resourceVersion: Invalid value: "6": field is immutable`}},
		{name: "StatusBackwards", sub: "status", patch: "{}", want: []string{`status.conditions: Invalid value: null: Success condition cannot be set to false once it is true`},
			old: `{status: {conditions: [{type: Succeeded, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`},
	})
	s.each(t, "ResourceClaim", []judged{
		{name: "Requests", patch: `{spec: {devices: {requests: [{name: r}, {name: r, exactly: {deviceClassName: "", allocationMode: All, count: 2, adminAccess: true}}]}}}`, want: []string{
			"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
			"spec.devices.requests[1].exactly.deviceClassName: Required value",
			"spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
			`spec.devices.requests[1]: Duplicate value: "r"`}},
		{name: "Constraints", patch: `{spec: {devices: {constraints: [{requests: [q], matchAttribute: model}, {}]}}}`, want: []string{
			`spec.devices.constraints[0].requests[0]: Invalid value: "q": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`,
			`spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash`,
			`spec.devices.constraints[1]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`}},
		{name: "StatusReserved", sub: "status", patch: `{status: {reservedFor: [{resource: pods, name: p, uid: u}]}}`, want: []string{"status.reservedFor: Forbidden: may not be specified when `allocated` is not set"}},
		{name: "StatusAllocated", sub: "status", patch: `{status: {allocation: {devices: {results: [{request: r, driver: d, pool: p, device: e}]}}, devices: [{driver: d, pool: p, device: e}], reservedFor: [{resource: pods, name: p, uid: u}]}}`},
		{name: "StatusOtherDevice", sub: "status", patch: `{status: {devices: [{driver: d, pool: p, device: e}]}}`, want: []string{`status.devices[0]: Invalid value: "d/p/e": must be an allocated device in the claim`}},
	})
	s.each(t, "ResourceClaimTemplate", []judged{
		{name: "Metadata", patch: `{spec: {metadata: {name: m, labels: {a: "b c"}}}}`, want: []string{
			`spec.metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			"spec.metadata.name: Forbidden: cannot be set"}},
	})
	s.each(t, "ResourceSlice", []judged{
		{name: "Place", patch: `{spec: {allNodes: true, pool: {resourceSliceCount: 0}}}`, want: []string{
			"spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
			"spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"}},
		{name: "Device", patch: `{spec: {devices: [{name: d, nodeName: m, attributes: {a/b/c: {int: 1, bool: true}}, bindingConditions: [c]}]}}`, want: []string{
			`spec.devices[0].attributes: Invalid value: "a/b/c": must not contain more than one slash`,
			`spec.devices[0].attributes[a/b/c]: Invalid value: "": exactly one value must be specified`,
			"spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
			"spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions"}},
		{name: "Policy", patch: `{spec: {devices: [{name: d, allowMultipleAllocations: true, capacity: {memory: {value: 10, requestPolicy: {default: 3, validRange: {min: 2, max: 8, step: 2}}}}}]}}`, want: []string{
			`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "3": value is not a multiple of a given step (2) from (2)`}},
		{name: "UpdateDriver", patch: `{spec: {driver: e.example.com}}`, want: []string{`spec.driver: Invalid value: "e.example.com": field is immutable`}},
	})
}

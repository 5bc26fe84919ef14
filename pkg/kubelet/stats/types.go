package stats

import (
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Summary is the response of /stats/summary. Nil values were not measured.
type Summary struct {
	Node Node  `json:"node"`
	Pods []Pod `json:"pods"`
}

// Node holds the statistics of the node.
type Node struct {
	NodeName  string      `json:"nodeName"`
	StartTime metav1.Time `json:"startTime"` // the boot time
	CPU       *CPU        `json:"cpu,omitempty"`
	Memory    *Memory     `json:"memory,omitempty"`
	Swap      *Swap       `json:"swap,omitempty"`
	Network   *Network    `json:"network,omitempty"`
	Fs        *Filesystem `json:"fs,omitempty"`
	Rlimit    *Rlimit     `json:"rlimit,omitempty"`
}

// Pod holds the statistics of a pod.
type Pod struct {
	PodRef     PodRef      `json:"podRef"`
	StartTime  metav1.Time `json:"startTime"`
	Containers []Container `json:"containers"`
	CPU        *CPU        `json:"cpu,omitempty"`
	Memory     *Memory     `json:"memory,omitempty"`
	Swap       *Swap       `json:"swap,omitempty"`
	Volumes    []Volume    `json:"volume,omitempty"`
}

// PodRef identifies a pod.
type PodRef struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
}

// Container holds the statistics of a container.
type Container struct {
	Name      string      `json:"name"`
	StartTime metav1.Time `json:"startTime"`
	CPU       *CPU        `json:"cpu,omitempty"`
	Memory    *Memory     `json:"memory,omitempty"`
	Swap      *Swap       `json:"swap,omitempty"`
	Rootfs    *Filesystem `json:"rootfs,omitempty"`
}

// CPU is CPU usage.
type CPU struct {
	Time                 metav1.Time `json:"time"`
	UsageNanoCores       *uint64     `json:"usageNanoCores,omitempty"`
	UsageCoreNanoSeconds *uint64     `json:"usageCoreNanoSeconds,omitempty"`
}

// Memory is memory usage in bytes.
type Memory struct {
	Time            metav1.Time `json:"time"`
	AvailableBytes  *uint64     `json:"availableBytes,omitempty"`
	UsageBytes      *uint64     `json:"usageBytes,omitempty"`
	WorkingSetBytes *uint64     `json:"workingSetBytes,omitempty"`
	RSSBytes        *uint64     `json:"rssBytes,omitempty"`
	PageFaults      *uint64     `json:"pageFaults,omitempty"`
	MajorPageFaults *uint64     `json:"majorPageFaults,omitempty"`
}

// Swap is swap space in bytes; what is available is the limit without what is in use.
type Swap struct {
	Time               metav1.Time `json:"time"`
	SwapAvailableBytes *uint64     `json:"swapAvailableBytes,omitempty"`
	SwapUsageBytes     *uint64     `json:"swapUsageBytes,omitempty"`
}

// Network is the traffic of all interfaces since boot.
type Network struct {
	Time       metav1.Time `json:"time"`
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Interface is the traffic of one network interface.
type Interface struct {
	Name     string  `json:"name"`
	RxBytes  *uint64 `json:"rxBytes,omitempty"`
	RxErrors *uint64 `json:"rxErrors,omitempty"`
	TxBytes  *uint64 `json:"txBytes,omitempty"`
	TxErrors *uint64 `json:"txErrors,omitempty"`
}

// Filesystem is the usage of space in bytes and of inodes.
type Filesystem struct {
	Time           metav1.Time `json:"time"`
	AvailableBytes *uint64     `json:"availableBytes,omitempty"`
	CapacityBytes  *uint64     `json:"capacityBytes,omitempty"`
	UsedBytes      *uint64     `json:"usedBytes,omitempty"`
	InodesFree     *uint64     `json:"inodesFree,omitempty"`
	Inodes         *uint64     `json:"inodes,omitempty"`
	InodesUsed     *uint64     `json:"inodesUsed,omitempty"`
}

// Rlimit is the maximum number of processes of the machine and the current one.
type Rlimit struct {
	Time                  metav1.Time `json:"time"`
	MaxPID                *int64      `json:"maxpid,omitempty"`
	NumOfRunningProcesses *int64      `json:"curproc,omitempty"`
}

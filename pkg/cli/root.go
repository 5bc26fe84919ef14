package cli

import (
	"io"

	"github.com/spf13/cobra"

	"podium/pkg/cluster/machine"
)

// IO holds the streams of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// NewCommand returns the podium command with all its subcommands.
func NewCommand(streams IO) *cobra.Command { return newCommand(newFactory(streams)) }

func newCommand(f *Factory) *cobra.Command {
	root := &cobra.Command{
		Use:           "podium",
		Short:         "Control Kubernetes clusters, and bring them up and down",
		SilenceUsage:  true,
		SilenceErrors: true, // Main prints the error
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(*cobra.Command, []string) error { return f.profiler.start() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.IO.Err)
	f.flags(root.PersistentFlags())
	f.completeGlobals(root)
	root.SetFlagErrorFunc(flagError)

	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("objects", "Objects:",
		newGet(f, runGet), newDescribe(f, runDescribe), newWhy(f, runWhy), newPlan(f, runPlan, runPlanDrain), newApply(f, runApply), newDiff(f, runDiff), newKustomize(f, runKustomize),
		newCreate(f, runCreate), newReplace(f, runReplace), newEdit(f, runEdit), newPatch(f, runPatch),
		newDelete(f, runDelete), newLabel(f, runLabel), newAnnotate(f, runLabel), newWait(f, runWait), newEvents(f, runEvents))
	group("apps", "Applications:",
		newRun(f, runCreate), newExpose(f, runDerive), newSet(f, runSet), newScale(f, runScale), newAutoscale(f, runDerive), newRollout(f), newLogs(f, runLogs), newExec(f, runExec), newAttach(f, runAttach), newDebug(f, runDebug),
		newPortForward(f, runPortForward), newProxy(f, runProxy), newCopy(f, runCopy))
	group("cluster", "Clusters:",
		newCluster(f), newClusterInfo(f), newCordon(f, runCordon), newUncordon(f, runCordon), newDrain(f, runDrain), newTaint(f, runTaint), newTop(f, runTopNode, runTopPod), newAPIResources(f, runAPIResources), newAPIVersions(f), newExplain(f, runExplain),
		newVersion(f, runVersion), newAuth(f), newCertificate(f, runCertificate), newConfig(f))
	group("machine", "This machine (systemd):",
		newInit(f.IO, machine.Init), newJoin(f.IO, machine.Join), newToken(f.IO), newReset(f.IO, machine.Reset),
		newCerts(f.IO, machine.CheckCertificates, machine.RenewCertificates, machine.UploadCertificates), newEtcd(f.IO, machine.ListMembers, machine.RemoveMember),
		newUpgrade(f.IO, machine.PlanUpgrade, machine.ApplyUpgrade),
		newBackup(f.IO, machine.Backup), newRestore(f.IO, machine.Restore))
	root.AddCommand(newAlpha(f), newOptions(f), newPlugin(f), newKuberc(f))
	refuseUnknown(root)
	return root
}

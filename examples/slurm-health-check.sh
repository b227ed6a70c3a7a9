#!/bin/sh
# Slurm's HealthCheckProgram, Prolog and Epilog: drains this node where its GPUs or their driver are broken, and returns it when
# they are well again. What is unknown drains nothing, and so does a splatfix that cannot be started.
#
#   HealthCheckProgram=/etc/slurm/slurm-health-check.sh
#   HealthCheckInterval=300
#   HealthCheckNodeState=ANY
#   Prolog=/etc/slurm/slurm-health-check.sh    # a job on a node that broke goes back into the queue
#   Epilog=/etc/slurm/slurm-health-check.sh
#
# Copy it onto every node, executable; slurmd gives it no PATH.
bin=/opt/splatfix/bin
export PATH="$bin:/usr/local/bin:/usr/bin:/bin"
node=${SLURMD_NODENAME:-$(hostname -s)}

# Nothing runs on the GPUs of a node on which one of these fails; of others, as of a full disk, a person decides.
report=$(timeout -k 5 45 splatfix diagnose --json \
  --only nvidia-gpu-missing --only gpu-without-driver --only gpu-memory-errors --only driver-library-mismatch \
  --only driver-library-missing --only cuda-does-not-start --only stub-libcuda-loaded --only container-device-closed)
code=$?

state=$(scontrol show node "$node" --oneliner) || exit 0
case $code in
  1)
    reason=$(printf '%s' "$report" | python -c '
import json, sys
print(next(item["check"] for item in json.load(sys.stdin)["findings"] if item["status"] == "fail"))') || exit 0
    case $state in
      *State=*DRAIN*) ;; # by us, or by somebody with a reason of their own
      *) scontrol update "NodeName=$node" State=DRAIN "Reason=splatfix: $reason" ;;
    esac
    exit 1 ;;
  0)
    case $state in
      *State=*DRAIN*Reason=splatfix:*) scontrol update "NodeName=$node" State=RESUME ;;
    esac ;;
esac
exit 0

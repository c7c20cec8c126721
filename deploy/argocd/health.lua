-- How well a SensorFleet or CameraFleet is, for Argo CD: resource.customizations.health.embereye.dev_SensorFleet and
-- …_CameraFleet in the ConfigMap argocd-cm. docs/how-to/gitops.md says where it goes.
local function answer(status, message)
  return { status = status, message = message }
end

local spec, status = obj.spec or {}, obj.status or {}
if spec.paused then
  return answer("Suspended", "spec.paused is true: the fleet is left as it is")
end
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
if not found.Ready or not found.Covered then
  return answer("Progressing", "waiting for the operator's first look")
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return answer("Progressing", "waiting for the operator to take up the change")
end
-- Before the others: a fleet that cannot be looked after says nothing else that is true.
if found.Degraded and found.Degraded.status == "True" then
  return answer("Degraded", found.Degraded.message)
end
if found.Progressing and found.Progressing.status == "True" then
  return answer("Progressing", found.Progressing.message)
end
for _, question in ipairs({ "Ready", "Covered", "Exposed" }) do
  local condition = found[question]
  if condition and condition.status ~= "True" then
    return answer("Degraded", condition.message)
  end
end
return answer("Healthy", found.Covered.message)

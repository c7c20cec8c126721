-- The health of a SensorFleet or CameraFleet for Argo CD: resource.customizations.health.embereye.dev_SensorFleet and
-- …_CameraFleet in the ConfigMap argocd-cm. docs/how-to/gitops.md says how to install it.
local function answer(status, message)
  return { status = status, message = message }
end

local spec, status = obj.spec or {}, obj.status or {}
if spec.paused then
  return answer("Suspended", "spec.paused is true: the operator does not change the fleet")
end
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
if not conditions.Ready or not conditions.Covered then
  return answer("Progressing", "waiting for the operator's first pass")
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return answer("Progressing", "waiting for the operator to apply the change")
end
-- First: if a fleet cannot be managed, its other conditions may be out of date.
if conditions.Degraded and conditions.Degraded.status == "True" then
  return answer("Degraded", conditions.Degraded.message)
end
if conditions.Progressing and conditions.Progressing.status == "True" then
  return answer("Progressing", conditions.Progressing.message)
end
for _, name in ipairs({ "Ready", "Covered", "Exposed" }) do
  local condition = conditions[name]
  if condition and condition.status ~= "True" then
    return answer("Degraded", condition.message)
  end
end
return answer("Healthy", conditions.Covered.message)

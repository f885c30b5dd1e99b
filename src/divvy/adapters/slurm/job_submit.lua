-- Holds jobs with GPUs at their submission, so that Divvy decides when they start.
-- Printed by `divvy slurm lua`; install it beside slurm.conf with JobSubmitPlugins=lua.
--
-- It fails open: when Divvy's heartbeat is missing or old, nothing is held, and Slurm works as without it.

local HEARTBEAT = "@HEARTBEAT@"
local FAIL_OPEN_AFTER_SECONDS = @FAIL_OPEN_AFTER_SECONDS@
local PARTITIONS = { @PARTITIONS@ } -- none: every partition
local MARK = "divvy:new"

local function divvy_lives()
    local file = io.open(HEARTBEAT, "r")
    if file == nil then
        return false
    end
    local beaten = tonumber(file:read("*l") or "")
    file:close()
    return beaten ~= nil and os.time() - beaten <= FAIL_OPEN_AFTER_SECONDS
end

local function wants_gpus(job)
    for _, name in ipairs({ "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "gres" }) do
        local text = job[name]
        if type(text) == "string" and string.find(text, "gpu", 1, true) then
            return true
        end
    end
    return false
end

local function partitions_of(job, known)
    local text = job.partition
    if text == nil or text == "" then
        for name, partition in pairs(known) do
            if partition.flag_default ~= 0 then
                text = name
            end
        end
    end
    return text or ""
end

local function is_managed(job, known)
    if next(PARTITIONS) == nil then
        return true
    end
    for name in string.gmatch(partitions_of(job, known), "[^,]+") do
        if PARTITIONS[name] then
            return true
        end
    end
    return false
end

function slurm_job_submit(job, partitions, _)
    -- A job that its user holds (sbatch --hold) stays the user's until it is released.
    if job.priority ~= 0 and wants_gpus(job) and is_managed(job, partitions) and divvy_lives() then
        job.priority = 0
        job.admin_comment = MARK
        if type(job.comment) == "string" and string.find(job.comment, "divvy:.*resumable") then
            job.requeue = 1
        end
    end
    return slurm.SUCCESS
end

function slurm_job_modify(_, _, _, _)
    return slurm.SUCCESS
end

return slurm.SUCCESS

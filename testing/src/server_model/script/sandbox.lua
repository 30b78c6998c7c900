-- Environment of scripts: the functions that scripts may call, in tables that scripts cannot change.
--   redis    the functions of the table `redis`
--   where    returns the source and the line of the code that raised the current error
--   raised   table whose field `value` is the value that a function of `redis` raises
--   is_new   true for Redis 7.0 and later, false for older versions
-- Returns the environment, and a function that runs a script.
local redis, where, raised, is_new = ...
local error, pcall, rawset, tostring, type, xpcall = error, pcall, rawset, tostring, type, xpcall
local READONLY = 'Attempt to modify a readonly table'

-- A function that is not written in Lua cannot raise a value of Lua. It stores the value, and raises an object.
local function value_of(err)
  if type(err) ~= 'userdata' then
    return err
  end
  local value = raised.value
  raised.value = nil
  return value or tostring(err)
end

local is_protected = {}

-- Returns a table with the same content that raises an error when a script changes it.
local function readonly(content, create)
  local function refuse()
    error(READONLY, 2)
  end
  local proxy = {}
  is_protected[proxy] = true
  return setmetatable(proxy, { __index = content, __newindex = create or refuse, __metatable = false })
end

local globals = {}
for _, name in ipairs({
  '_VERSION', 'assert', 'error', 'getmetatable', 'ipairs', 'next', 'pairs', 'rawequal', 'rawget', 'select',
  'setmetatable', 'tonumber', 'tostring', 'type', 'unpack',
}) do
  globals[name] = _G[name]
end

-- Bytecode, random numbers and the clock have no place in a deterministic model.
string.dump, math.random, math.randomseed = nil, nil, nil
globals.math, globals.table = readonly(math), readonly(table)
globals.string = readonly(string)
getmetatable('').__index = globals.string
getmetatable('').__metatable = false
globals.redis = readonly(redis)

function globals.rawset(t, key, value)
  if is_protected[t] then
    error(READONLY, 0)
  end
  return rawset(t, key, value)
end

-- Since 7.0, pcall returns the text of an error instead of the table.
local function results(ok, err, ...)
  if ok then
    return ok, err, ...
  end
  err = value_of(err)
  if is_new and type(err) == 'table' and type(err.err) == 'string' then
    err = err.err
  end
  return false, err
end

function globals.pcall(...)
  return results(pcall(...))
end

function globals.xpcall(run, handler)
  return xpcall(run, function(err)
    return handler(value_of(err))
  end)
end

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})

local environment = readonly(globals, not is_new and function(_, name)
  error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
end)
globals._G = environment

local function handler(err)
  err = value_of(err)
  local source, line = where()
  if not is_new then
    return source and source .. ':' .. line .. ': ' .. tostring(err) or tostring(err)
  end
  if type(err) ~= 'table' then
    err = { err = 'ERR ' .. tostring(err) }
  end
  if source then
    err.source, err.line = source, line
  end
  return err
end

local function run(script, keys, arguments)
  globals.KEYS, globals.ARGV = keys, arguments
  return xpcall(script, handler)
end

return environment, run
